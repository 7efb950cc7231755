from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
from pathlib import Path

import postroad

ROOT = Path(__file__).parents[3]

WITHOUT_EXTRAS = """
import sys
allowed = {"postroad", "psycopg", "psycopg_pool", "psycopg_binary", "typing_extensions"}
class OnlyTheDriver:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in allowed or top in sys.stdlib_module_names or top.startswith("_"):
            return None
        raise ModuleNotFoundError(f"not with the driver alone: {name}", name=name)
sys.meta_path.insert(0, OnlyTheDriver())
"""


def _run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS + code], capture_output=True, text=True, check=False
    )


def test_the_bus_client_needs_the_driver_alone() -> None:
    done = _run("import postroad.bus, postroad.postgres")
    assert done.returncode == 0, done.stderr


def test_the_command_without_its_extras_says_what_to_install() -> None:
    done = _run("from postroad.cli import run; run()")
    assert done.returncode == 5
    assert "pip install 'postroad[server]'" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_sql_of_a_room_is_read_without_the_room() -> None:
    code = "import sys\nfrom postroad.cli.components import SCHEMAS\n"
    code += "from postroad.postgres.manifest import read_manifest\n"
    code += "assert all(read_manifest(schema).files for schema in SCHEMAS)\n"
    # The bus declares its own schema, and needs only the driver.
    code += "names = {schema.package for schema in SCHEMAS} - {'postroad.bus'}\n"
    code += "print(sorted(names & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_commands_do_not_wait_for_the_web_framework() -> None:
    groups = ("exchange", "intake", "coordination")
    code = f"import sys, {', '.join(f'postroad.cli.{group}' for group in groups)}\n"
    code += "print([name for name in ('fastapi', 'celery') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_version_and_changelog_agree() -> None:
    assert importlib.metadata.version("postroad") == postroad.__version__
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## \[(\d[^\]]*)\]", changelog, re.MULTILINE)
    assert newest is not None
    assert newest[1] == postroad.__version__


def test_every_package_has_the_names_that_it_lists_as_public() -> None:
    for package in (
        "postroad",
        "postroad.alerts",
        "postroad.bus",
        "postroad.postgres",
    ):
        loaded = importlib.import_module(package)
        assert all(hasattr(loaded, name) for name in loaded.__all__)
