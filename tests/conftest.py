"""Every module of `tests/fixtures` is a plugin: a new server needs no line here."""

import gc
import os
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import pytest

pytest_plugins = sorted(
    f"tests.fixtures.{module.stem}"
    for module in (Path(__file__).parent / "fixtures").glob("[a-z]*.py")
)

LONG_FOLDERS = ("tests/chaos/", "tests/console/", "tests/acceptance/", "tests/integration/product/")
# Fixtures that start something expensive in each worker, or in each module, that has a test of
# theirs; and over how many workers their tests are spread. The first of a test's counts.
EXPENSIVE_FIXTURES = {
    "console": 2,
    "surface": 1,
    "fork_server": 1,
    "rabbitmq": 1,
    "firebird": 1,
    "served": 1,
    "hasty_exchange": 1,
    "moto": 1,
    "installed": 1,
}
# Rough durations, by which the workers' shares are made equally long.
CONSOLE_SECONDS = 4.0
LONG_SECONDS = 8.0
SHORT_SECONDS = 0.5


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give each worker a share that begins with long tests and ends with short ones.

    A share is a part of the list; workers that have finished theirs take from the ends of the
    others'. A long test at such an end would keep one worker busy and the others idle. Tests of an
    expensive fixture follow each other, module by module, in as few shares as possible.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    shares = [_Share() for _ in range(workers)]
    blocks, long, short = _sorted_out(items)
    for block in blocks:
        min(shares, key=lambda share: share.seconds).block += block
    for item in long:
        min(shares, key=lambda share: share.seconds).long.append(item)
    left = len(items)
    for number, share in enumerate(shares):
        # The sizes of the parts into which pytest-xdist cuts the list.
        size = left // (workers - number)
        left -= size
        share.short = [short.pop() for _ in range(size - share.count) if short]
    items[:] = [item for share in shares for item in share.in_order()] + short


def pytest_collection_finish() -> None:
    """Exempt modules and collected tests from garbage collection: they stay until the end."""
    gc.collect()
    gc.freeze()


class _Share:
    """The tests that one worker begins with."""

    def __init__(self) -> None:
        self.block: list[pytest.Item] = []
        self.long: list[pytest.Item] = []
        self.short: list[pytest.Item] = []

    @property
    def seconds(self) -> float:
        return sum(map(_seconds, self.block)) + LONG_SECONDS * len(self.long)

    @property
    def count(self) -> int:
        return len(self.block) + len(self.long)

    def in_order(self) -> list[pytest.Item]:
        # Not all the long ones at once: many of them start servers or kill them.
        between = len(self.short) * 2 // 3 // (len(self.long) or 1)
        mixed = list(self.block)
        for place, item in enumerate(self.long):
            mixed += [item, *self.short[place * between : (place + 1) * between]]
        return mixed + self.short[len(self.long) * between :]


def _sorted_out(
    items: Iterable[pytest.Item],
) -> tuple[list[list[pytest.Item]], list[pytest.Item], list[pytest.Item]]:
    """Return blocks, longest first, then the other long tests and the short ones."""
    modules: dict[str, dict[Path, list[pytest.Item]]] = defaultdict(lambda: defaultdict(list))
    long, short = [], []
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        expensive = next((name for name in EXPENSIVE_FIXTURES if name in fixtures), None)
        if expensive is not None:
            modules[expensive][item.path].append(item)
        else:
            (long if _is_long(item) else short).append(item)
    blocks = []
    for name, of_module in modules.items():
        parts = EXPENSIVE_FIXTURES[name]
        in_turn = list(of_module.values())
        blocks += [
            [item for module in in_turn[part::parts] for item in module] for part in range(parts)
        ]
    blocks.sort(key=lambda block: -sum(map(_seconds, block)))
    return blocks, long, short


def _is_long(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None or item.nodeid.startswith(LONG_FOLDERS)


def _seconds(item: pytest.Item) -> float:
    if "console" in getattr(item, "fixturenames", ()):
        return CONSOLE_SECONDS
    return LONG_SECONDS if item.get_closest_marker("slow") is not None else SHORT_SECONDS
