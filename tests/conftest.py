"""Every module of `tests/fixtures` is a plugin: a new server needs no line here."""

from pathlib import Path

pytest_plugins = sorted(
    f"tests.fixtures.{module.stem}"
    for module in (Path(__file__).parent / "fixtures").glob("[a-z]*.py")
)
