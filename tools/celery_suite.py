"""Run the integration suite of Celery itself on `mbus://`, or for comparison on RabbitMQ.

    python -m tools.celery_suite                                   the whole selection
    python -m tools.celery_suite --compare                         and the failed tests on RabbitMQ
    python -m tools.celery_suite -k test_chord                     arguments of pytest select tests
    python -m tools.celery_suite --broker rabbitmq -k test_chord   the same tests on RabbitMQ

The tests come from the source distribution of the Celery that is installed, by pip, into the
user's cache folder. They run against the installed Celery, a PostgreSQL of their own and, with
`--broker rabbitmq`, a RabbitMQ of their own; results are stored in PostgreSQL in both cases.
Files with tests of other servers (Redis, Memcached, Azure, SQL databases, Docker) are not selected.
In the files that are, most tests that need Redis skip themselves; the rest is deselected by name.
Each file has a process of its own: flags in memory that a test leaves set make tests of later files
fail, with every broker.
SIGTERM and SIGINT end the tests and stop the servers.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import zlib
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest

from postroad.testing import TestServer
from tests.fixtures.rabbitmq import RabbitServer
from tests.integration.broker.crew import url_of

ROOT = Path(__file__).parents[1]
# What the tests import; Django and what it needs for the tests of Celery's Django integration.
PLUGINS = (
    *("pytest-rerunfailures==16.7", "pytest-subtests==0.15.0", "pytest-order==1.5.0", "redis"),
    *("django==5.2.*", "asgiref", "sqlparse"),
)
FILES = (
    "test_canvas",
    "test_group_chains",
    "test_inspect",
    "test_tasks",
    "test_worker",
    "test_beat",
    "test_serialization",
    "test_loader",
    "test_upgrade",
    "test_logfile_format",
    "test_security",
)
# Tests that connect to Redis whatever the result backend is.
NEEDS_REDIS = (
    "t/integration/test_canvas.py::test_chain"
    "::test_chord_header_id_duplicated_on_rabbitmq_msg_duplication",
)
STOP_TIMEOUT_SECONDS = 30.0
EXPECTED = (
    pytest.ExitCode.OK,
    pytest.ExitCode.TESTS_FAILED,
    pytest.ExitCode.NO_TESTS_COLLECTED,
)


def marker(cache: Path, celery: str) -> Path:
    """Return the file that exists when the folder beside it is complete."""
    name = f"complete-{zlib.crc32(repr(PLUGINS).encode()):08x}"
    return cache / "postroad" / f"celery-suite-{celery}" / name


def sources(celery: str) -> Path:
    """Return the folder with Celery's tests and the plugins that they need, downloaded once."""
    cache = Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")).expanduser()
    complete = marker(cache, celery)
    folder = complete.parent
    if complete.exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    download = ["download", "--no-binary", "celery", "--no-deps", f"celery=={celery}"]
    subprocess.run([*pip, *download, "-d", str(folder)], check=True)
    plugins = ["install", "--no-deps", "--upgrade", "--target", str(folder / "plugins")]
    subprocess.run([*pip, *plugins, *PLUGINS], check=True)
    [archive] = folder.glob("celery-*.tar.gz")
    with tarfile.open(archive) as opened:
        wanted = [
            member
            for member in opened.getmembers()
            if member.name.partition("/")[2].startswith(("t/", "pyproject.toml"))
        ]
        opened.extractall(folder, wanted, filter="data")
    complete.touch()
    return folder


Results = dict[str, str]
OUTCOMES = ("passed", "failed", "skipped", "xfailed")


def run(broker: str, backend: str, arguments: list[str], reports: Path) -> Results:
    """Run pytest in Celery's sources, once for each file; return the outcome of each test."""
    selected: dict[str, list[str]] = {}
    options = []
    for argument in arguments:
        file, _, test = argument.partition("::")
        if not file.endswith(".py"):
            options.append(argument)
        elif test or file not in selected:
            selected.setdefault(file, []).append(argument)
    for name in () if selected else FILES:
        selected[f"t/integration/{name}.py"] = [f"t/integration/{name}.py"]
    results: Results = {}
    for file, tests in selected.items():
        report = reports / f"{Path(file).stem}.xml"
        status = run_file(broker, backend, [*tests, *options, f"--junit-xml={report}"])
        if status not in EXPECTED:
            sys.exit(status)
        results |= outcomes(file, report)
    return results


def outcomes(file: str, report: Path) -> Results:
    """Return the outcome of each test of a report, one of OUTCOMES."""
    results: Results = {}
    module = file.removesuffix(".py").replace("/", ".")
    for case in ElementTree.parse(report).iter("testcase"):
        classes = case.get("classname", "").removeprefix(module).removeprefix(".")
        name = "::".join(filter(None, [file, *classes.split("."), case.get("name")]))
        kinds = {child.get("type") if child.tag == "skipped" else child.tag for child in case}
        if kinds & {"failure", "error"}:
            results[name] = "failed"
        elif "pytest.xfail" in kinds:
            results[name] = "xfailed"
        else:
            # A test whose teardown fails is there twice.
            results.setdefault(name, "skipped" if "pytest.skip" in kinds else "passed")
    return results


def run_file(broker: str, backend: str, arguments: list[str]) -> int:
    """Run pytest with these arguments; return its exit status."""
    celery = version("celery")
    folder = sources(celery)
    root = folder / f"celery-{celery}"
    paths = (str(folder / "plugins"), str(root), str(ROOT / "src"))
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        # Some tests run the program `celery` and read the worker's log.
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", ""))),
        "WORKER_LOGLEVEL": "INFO",
        "TEST_BROKER": broker,
        "TEST_BACKEND": backend,
        "PYTHONWARNINGS": "ignore",
    }
    command = [sys.executable, "-m", "pytest", "-p", "no:randomly", "-p", "no:cacheprovider"]
    command += ["-p", "no:postroad", "-p", "celery.contrib.pytest"]
    command += [f"--deselect={test}" for test in NEEDS_REDIS]
    # A process group of its own, so that Celery's pool ends with pytest.
    process = subprocess.Popen(
        [*command, *arguments],
        cwd=root,
        env=environment,
        stdin=subprocess.DEVNULL,
        process_group=0,
    )
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(STOP_TIMEOUT_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_on(broker: str, arguments: list[str]) -> Results:
    """Run the tests on servers of their own."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="celery-suite-")))
        folder.chmod(0o755)
        server = TestServer(folder / "postgres")
        stack.callback(server.stop)
        server.start()
        url = backend = url_of(server.dsn(server.create()))
        if broker == "rabbitmq":
            rabbitmq = RabbitServer(folder / "rabbitmq")
            stack.callback(rabbitmq.close)
            rabbitmq.start()
            url = rabbitmq.url
        return run(url, backend, arguments, folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--broker", choices=["mbus", "rabbitmq"], default="mbus")
    parser.add_argument("--compare", action="store_true", help="run failed tests on RabbitMQ, too")
    options, arguments = parser.parse_known_args()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    results = run_on(options.broker, arguments)
    failed = [test for test, outcome in results.items() if outcome == "failed"]
    other = run_on("rabbitmq", failed) if options.compare and failed else {}
    counts = Counter(results.values())
    total = ", ".join(f"{counts[each]} {each}" for each in OUTCOMES)
    print(f"\nCelery {version('celery')} on {options.broker}: {total}")
    for test in failed:
        print(f"failed: {test}" + (f" (on rabbitmq: {other[test]})" if test in other else ""))
    sys.exit(1 if failed or not results else 0)


def _end(number: int, _: object) -> None:
    """End by an exception, so that everything is stopped; a second signal changes nothing."""
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
