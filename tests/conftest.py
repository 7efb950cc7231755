"""Every module of `tests/fixtures` is a plugin: a new server needs no line here."""

import os
from pathlib import Path

import pytest

pytest_plugins = sorted(
    f"tests.fixtures.{module.stem}"
    for module in (Path(__file__).parent / "fixtures").glob("[a-z]*.py")
)

LONG_FOLDERS = ("tests/chaos/", "tests/console/", "tests/acceptance/", "tests/integration/house/")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spread the long tests over the workers, and let each worker's share end with short ones.

    A share is a part of the list; who is through with theirs takes from the ends of the others'. A
    long test at such an end would keep one worker busy and the others idle.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = [item for item in items if _is_long(item)]
    short = [item for item in items if not _is_long(item)]
    items[:] = [
        item
        for worker in range(workers)
        for item in _share(long[worker::workers], short[worker::workers])
    ]


def _share(long: list[pytest.Item], short: list[pytest.Item]) -> list[pytest.Item]:
    # Not all the long ones at once: many of them start servers or kill them.
    between = len(short) * 2 // 3 // (len(long) or 1)
    mixed: list[pytest.Item] = []
    for place, item in enumerate(long):
        mixed += [item, *short[place * between : (place + 1) * between]]
    return mixed + short[len(long) * between :]


def _is_long(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None or item.nodeid.startswith(LONG_FOLDERS)
