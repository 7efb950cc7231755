"""docs/howto/migrate-from-celery-broker.md, step by step, on a real RabbitMQ and a real Redis."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from celery import Celery

from benchmarks.peers.install import NotInstalled, installed_peer
from postroad.testing import wait_until
from tests.docs.snippets import DOCS, ROOT, snippets
from tests.integration.broker.crew import url_of
from tests.programs import refuse_missing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
PAGE = DOCS / "howto" / "migrate-from-celery-broker.md"
PAGE_TEXT = PAGE.read_text(encoding="utf-8")
HOUR = 3600
Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture(params=["rabbitmq", "redis"])
def old_url(request: pytest.FixtureRequest) -> str:
    if request.param == "redis":
        return str(request.getfixturevalue("redis_url"))
    rabbitmq = request.getfixturevalue("rabbitmq")
    # The queue has the name that Celery gives it by default, so each test needs its own.
    host = rabbitmq.unique("moved")
    rabbitmq.control("add_vhost", host)
    rabbitmq.control("set_permissions", "-p", host, "guest", ".*", ".*", ".*")
    return f"{rabbitmq.url}{host}"


@pytest.fixture
def environment(database: str, tmp_path: Path) -> dict[str, str]:
    for snippet in snippets(PAGE):
        if snippet.title:
            (tmp_path / snippet.title).write_text(snippet.body, encoding="utf-8")
    try:
        peer = installed_peer(ROOT, "redis", ("redis",))
    except NotInstalled as reason:
        refuse_missing(str(reason))
    path = os.pathsep.join([str(ROOT / "src"), str(tmp_path), str(peer)])
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": path,
        "PYTHONWARNINGS": "ignore",
        "BILLS": str(tmp_path / "bills"),
        "DSN": database,
    }


@pytest.fixture
def start(environment: dict[str, str], tmp_path: Path) -> Iterator[Start]:
    """Start a worker of the page on a broker and wait until it is ready."""
    started: list[subprocess.Popen[bytes]] = []
    [command] = re.findall(r"BROKER_URL=\S+ (celery -A shop worker.*)", PAGE_TEXT)

    def run(url: str, *options: str) -> subprocess.Popen[bytes]:
        log = tmp_path / f"worker-{len(started)}.log"
        quick = ["--loglevel=info", "--without-mingle", "--without-gossip", "--concurrency=2"]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command.split(), *quick, *options],
                env={**environment, "BROKER_URL": url},
                cwd=tmp_path,
                stdout=output,
                stderr=output,
            )
        started.append(process)
        wait_until(lambda: " ready." in log.read_text("utf-8"), what="ready", timeout_seconds=60)
        return process

    yield run
    for process in started:
        if process.poll() is None:
            process.send_signal(signal.SIGQUIT)
            process.wait()


def command(environment: dict[str, str], folder: Path, url: str, *text: str) -> str:
    done = subprocess.run(
        [sys.executable, *text],
        env={**environment, "BROKER_URL": url},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_celery_application_moves_without_losing_a_task(
    old_url: str, database: str, environment: dict[str, str], tmp_path: Path, start: Start
) -> None:
    new_url = url_of(database)
    bills = tmp_path / "bills"

    def send(url: str, first: int, last: int, **options: object) -> None:
        code = (
            f"import shop\nfor n in range({first}, {last}):"
            f" shop.bill.apply_async((n,), **{options!r})"
        )
        command(environment, tmp_path, url, "-c", code)

    def handled() -> list[int]:
        text = bills.read_text(encoding="utf-8") if bills.exists() else ""
        return sorted(int(line) for line in text.split())

    def moved() -> int:
        output = command(environment, tmp_path, old_url, "move.py", old_url, database, "celery")
        return int(output.removeprefix("celery: "))

    # The first step: both brokers have workers; the second: producers of both.
    old = start(old_url, "--hostname=old@%h")
    new = start(new_url)
    send(old_url, 0, 20)
    send(new_url, 20, 40)
    send(old_url, 40, 42, countdown=HOUR)
    wait_until(lambda: handled() == list(range(40)), what="tasks of both brokers")

    # The third: the old worker ends, and what it had prefetched is moved.
    old.terminate()
    old.wait()
    send(old_url, 42, 50)
    assert moved() == 10
    assert moved() == 0
    wait_until(lambda: handled() == [*range(40), *range(42, 50)], what="moved tasks are handled")
    new.terminate()
    new.wait()
    with psycopg.connect(database) as connection:
        delayed = connection.execute("select sum(delayed) from mbus.status").fetchone()
    assert delayed == (2,)


def test_a_move_that_is_interrupted_sends_no_task_twice(
    old_url: str, database: str, environment: dict[str, str], tmp_path: Path
) -> None:
    source = "import shop\nfor n in range(5): shop.bill.delay(n)"
    command(environment, tmp_path, old_url, "-c", source)
    # Ends after the commit of the third task, before it is acknowledged.
    program = tmp_path / "move.py"
    text = program.read_text(encoding="utf-8")
    assert text.count("    message.ack()\n") == 1
    (tmp_path / "interrupted.py").write_text(
        text.replace(
            "    message.ack()\n",
            "    count = database.execute('select count(*) from moved_task').fetchone()\n"
            "    if count == (3,): sys.exit('interrupted')\n    message.ack()\n",
        ),
        encoding="utf-8",
    )
    with Celery(broker=url_of(database)).connection() as connection:
        connection.default_channel  # noqa: B018 - installs the schema of the broker
    arguments = (old_url, database, "celery")
    done = subprocess.run(
        [sys.executable, "interrupted.py", *arguments],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "interrupted" in done.stderr, done.stderr
    assert command(environment, tmp_path, old_url, "move.py", *arguments) == "celery: 2\n"
    with psycopg.connect(database) as connection:
        assert connection.execute("select sum(ready) from mbus.status").fetchone() == (5,)
