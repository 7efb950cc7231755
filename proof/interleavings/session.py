"""A session whose statements run while the explorer goes on with other sessions."""

from __future__ import annotations

import select
from dataclasses import dataclass

import psycopg
from psycopg import pq

__all__ = ["Answer", "Observer", "Session"]


@dataclass(frozen=True)
class Answer:
    """What a statement returned: rows of text, or an error."""

    rows: tuple[tuple[str | None, ...], ...] = ()
    sqlstate: str | None = None
    message: str = ""


class Session:
    """A connection of the driver's lowest level: statements are sent, and answers read later."""

    def __init__(self, dsn: str) -> None:
        self._connection = pq.PGconn.connect(dsn.encode())
        if self._connection.status != pq.ConnStatus.OK:
            raise psycopg.OperationalError(self._connection.get_error_message())
        self.pid = self._connection.backend_pid
        # A deadlock is a verdict that the explorer waits for.
        self.run("set deadlock_timeout = '20ms'")
        self.run("set client_min_messages = 'error'")

    def start(self, text: str, parameters: tuple[str | None, ...] = ()) -> None:
        """Send a statement without waiting for its end."""
        values = [None if value is None else value.encode() for value in parameters]
        self._connection.send_query_params(text.encode(), values)

    def is_done(self, timeout_seconds: float) -> bool:
        """Wait for the end of the statement; False if it has not ended in this time."""
        self._connection.consume_input()
        if self._connection.is_busy():
            select.select([self._connection.socket], [], [], timeout_seconds)
            self._connection.consume_input()
        return not self._connection.is_busy()

    def answer(self) -> Answer:
        """Return what the statement, which has ended, returned."""
        answer = Answer()
        while (result := self._connection.get_result()) is not None:
            if result.status == pq.ExecStatus.FATAL_ERROR:
                state = result.error_field(pq.DiagnosticField.SQLSTATE) or b"08000"
                answer = Answer((), state.decode(), result.get_error_message())
            elif result.status == pq.ExecStatus.TUPLES_OK:
                answer = Answer(
                    tuple(
                        tuple(
                            None
                            if (cell := result.get_value(row, place)) is None
                            else cell.decode()
                            for place in range(result.nfields)
                        )
                        for row in range(result.ntuples)
                    )
                )
        return answer

    def run(self, text: str, parameters: tuple[str | None, ...] = ()) -> Answer:
        """Run a statement that waits for nobody, and return its answer."""
        self.start(text, parameters)
        while not self.is_done(30):
            pass
        return self.answer()

    def close(self) -> None:
        """End the session; what is open is rolled back."""
        self._connection.finish()


class Observer:
    """Reads which sessions wait for which."""

    def __init__(self, dsn: str) -> None:
        self._connection = psycopg.connect(dsn, autocommit=True)

    def blockers(self, pids: list[int]) -> dict[int, set[int]]:
        """Return those of these sessions that wait for a lock, and the sessions that hold it."""
        found = self._connection.execute(
            "select p.pid, pg_blocking_pids(p.pid) from unnest(%s::integer[]) p(pid)"
            " join pg_stat_activity a on a.pid = p.pid and a.wait_event_type = 'Lock'",
            (pids,),
        )
        return {pid: set(blocking) for pid, blocking in found if blocking}

    def close(self) -> None:
        """End the connection."""
        self._connection.close()
