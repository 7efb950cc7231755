"""Partners of the services, one process each: senders, ERPs, a Writer, a Reader's user, a shop.

`python -m proof.soak.partners ROLE NAME`, with the rest as JSON on the standard input. They record
what they do for the checkers of `proof.history.partners`.
"""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row
from sqlalchemy import BigInteger, Column, MetaData, String, Table, Uuid, create_engine

from postroad.bus import Bus
from postroad.cli.coordination_databases import NAMES
from postroad.coordination import entities
from postroad.exchange import operations
from postroad.exchange.client import Exchange, ExchangeClientError
from postroad.postgres import run_blocking
from proof.history.checkers import Finding
from proof.history.partners import check_files, check_hand_over, check_readers
from proof.history.record import Call, History, Recorder

__all__ = ["ROLES", "Place", "judge_partners", "prepare"]

# The mailbox of the exchange, and the ERP's own database.
DATABASE = "proof"
READER = "lists"
NOTICES, CONSUMER = "file_events", "proof"
ITEMS, FILES = 12, 200
_ITEM = Table(
    "ProofItem",
    MetaData(),
    Column("Id", BigInteger, primary_key=True, autoincrement=False),
    Column("CorrelationId", Uuid, server_default="00000000-0000-0000-0000-000000000000"),
    Column("Name", String(50)),
)
_STATE = 'select coalesce(jsonb_object_agg("Id", "Name"), \'{}\') from "ProofItem"'


@dataclass(frozen=True)
class Place:
    """Where the services are, and where the history goes."""

    dsn: str
    url: str
    token: str
    data: str
    folder: str
    seed: int = 0

    def database(self, part: str) -> str:
        """Return the database of a part of coordination, or the ERP's."""
        return make_conninfo(self.dsn, dbname=NAMES.get(part, part))

    @property
    def outgoing(self) -> Path:
        """Where the sample's SFTP server has its files."""
        return Path(self.data) / "sample" / "sftp" / "outgoing"

    @property
    def store(self) -> Path:
        """The store of the intake."""
        return Path(self.data) / "intake" / "store"


def prepare(dsn: str) -> str:
    """Create what the partners need beside the sample; return the token for the exchange."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(f"create database {DATABASE}".encode())
    place = Place(dsn, "", "", "", "")
    with psycopg.connect(place.database(DATABASE), autocommit=True) as connection:
        connection.execute("create table handed_over (key text not null, process text not null)")
    for part in ("reader", "writer"):
        engine = create_engine(entities.engine_url(place.database(part)))
        _ITEM.metadata.create_all(engine)
        if part == "reader":
            entities.reader(engine, READER).replicate(_ITEM)
        else:
            entities.writer(engine).track(_ITEM)
        engine.dispose()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("create table proof_notice (sha256 text not null)")
        Bus(connection).create_consumer(NOTICES, CONSUMER)
    made = run_blocking(dsn, operations.add_client, DATABASE, databases=[DATABASE])
    return made.token


def send(place: Place, recorder: Recorder, stop: threading.Event) -> None:
    """Send messages to the ERP; repeat a call without an answer under the same id."""
    exchange = Exchange(place.url, place.token, patience=5.0)
    number = 0
    while not stop.wait(0.2):
        number += 1
        key = f"{recorder.name}-{number}"
        while True:
            call = recorder.invoke("send", database=DATABASE, key=key)
            try:
                exchange.send(DATABASE, {"key": key}, id=key)
            except ExchangeClientError as failure:
                recorder.answer(call, "send", "unknown", error=str(failure))
                if stop.wait(0.5):
                    break
            else:
                recorder.answer(call, "send", "ok")
                break


def hand_over(place: Place, _: Recorder, stop: threading.Event) -> None:
    """Process messages as an ERP does: their rows and the marker commit together."""
    exchange = Exchange(place.url, place.token, patience=5.0)
    while not stop.is_set():
        with (
            suppress(ExchangeClientError, psycopg.Error, OSError),
            psycopg.connect(place.database(DATABASE)) as connection,
        ):
            while not stop.is_set():
                with exchange.process(DATABASE, connection) as work:
                    keys = [message["id"] for file in work.files for message in file.messages]
                    for key in keys:
                        connection.execute(
                            "insert into handed_over values (%s, %s)", (key, work.id)
                        )
                stop.wait(0.0 if keys else 0.3)
        stop.wait(0.5)


def write(place: Place, recorder: Recorder, stop: threading.Event) -> None:
    """Change items of the Writer, one transaction after the other."""
    chance = Random(place.seed)
    while not stop.is_set():
        with (
            suppress(psycopg.Error),
            psycopg.connect(place.database("writer")) as connection,
        ):
            while not stop.wait(0.3):
                # Held until a killed predecessor's last transaction has ended.
                connection.execute("select pg_advisory_xact_lock(18)")
                before = _rows(connection)
                for _ in range(chance.randint(1, 4)):
                    _change(connection, chance)
                after = _rows(connection)
                if before == after:
                    connection.rollback()
                    continue
                call = recorder.invoke("write", before=before, after=after)
                try:
                    connection.commit()
                except psycopg.Error:
                    recorder.answer(call, "write", "unknown")
                    raise
                recorder.answer(call, "write", "ok")
        stop.wait(0.5)


def _change(connection: psycopg.Connection, chance: Random) -> None:
    number, name = chance.randrange(ITEMS), f"{chance.randrange(1 << 30):x}"
    if chance.random() < 0.3:
        connection.execute('delete from "ProofItem" where "Id" = %s', (number,))
    else:
        connection.execute(
            'insert into "ProofItem" ("Id", "Name") values (%s, %s)'
            ' on conflict ("Id") do update set "Name" = excluded."Name"',
            (number, name),
        )


def _rows(connection: psycopg.Connection) -> dict[str, str]:
    row = connection.execute(_STATE.encode()).fetchone()
    assert row is not None
    return dict(row[0])


def watch(place: Place, recorder: Recorder, stop: threading.Event) -> None:
    """Record each state that the Reader shows."""
    last = None
    while not stop.is_set():
        with (
            suppress(psycopg.Error),
            psycopg.connect(place.database("reader"), autocommit=True) as connection,
        ):
            while not stop.wait(0.1):
                if (rows := _rows(connection)) != last:
                    recorder.note("shown", rows=rows)
                    last = rows
        stop.wait(0.5)


def put(place: Place, recorder: Recorder, stop: threading.Event) -> None:
    """Put files under a temporary name and rename them; later versions replace earlier ones."""
    chance = Random(place.seed)
    while not stop.wait(2.0):
        name = f"proof-{chance.randrange(FILES)}.dat"
        content = chance.randbytes(chance.randint(16, 10_000))
        part = place.outgoing / f".{name}.part"
        part.write_bytes(content)
        call = recorder.invoke("put", name=name, sha256=hashlib.sha256(content).hexdigest())
        part.rename(place.outgoing / name)
        recorder.answer(call, "put", "ok")


def notice(place: Place, _: Recorder, stop: threading.Event) -> None:
    """Keep the notices of the intake, each in the transaction that consumes it."""
    while not stop.is_set():
        with suppress(psycopg.Error), psycopg.connect(place.dsn) as connection:
            bus = Bus(connection)
            while not stop.wait(0.5):
                for message in bus.consume(NOTICES, CONSUMER, amount=100):
                    sha256 = message.data["sha256"]
                    connection.execute("insert into proof_notice values (%s)", (sha256,))
                connection.commit()
        stop.wait(0.5)


def judge_partners(place: Place) -> list[Finding]:
    """Judge what the partners recorded, and what is in their databases and in the store."""
    history = History.read(Path(place.folder))
    for database, operation, statement in (
        (DATABASE, "handed_over", f"select key, '{DATABASE}' as database from handed_over"),
        (None, "notice", "select sha256 from proof_notice"),
    ):
        dsn = place.database(database) if database else place.dsn
        with psycopg.connect(dsn, row_factory=dict_row) as connection:
            for row in connection.execute(statement.encode()):
                history.notes.append(_found(operation, row))
    for file in place.store.rglob("*"):
        if file.is_file() and ".uploads" not in file.parts:
            row = {"sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
            history.notes.append(_found("object", row))
    return [check_hand_over(history, DATABASE), check_readers(history), check_files(history)]


def _found(operation: str, fields: dict[str, Any]) -> Call:
    return Call("driver", operation, 0.0, fields, 0.0, "ok")


ROLES: dict[str, Callable[[Place, Recorder, threading.Event], None]] = {
    role.__name__: role for role in (send, hand_over, write, watch, put, notice)
}


def main() -> None:
    """Play a role until terminated."""
    role, name = sys.argv[1:]
    place = Place(**json.load(sys.stdin))
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    ROLES[role](place, Recorder(Path(place.folder), name), stop)


if __name__ == "__main__":
    main()
