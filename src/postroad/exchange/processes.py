"""Processes: API_1 to API_6, renew, resolve and release.

```
STARTED ── prepare ──> READY_TO_COMMIT ── commit ──> CLEANUP ── files moved ──> DONE
   │                      │      │                    │  ▲
   │ abort, fail          │      │ timed out,         ▼  │ tried again
   ▼                      │      ▼ server restarted  FAILED
ABORTED <── abort ────────┘   UNKNOWN ── commit, abort, resolve ──> CLEANUP, ABORTED
CANCELLED <── timed out, released (from STARTED)
```

Each call is one transaction of the journal, then the files follow, then the caller is told. So a
crash at any point leaves either the old state, or the new one with moves that the redo finishes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any, Literal

import psycopg
from psycopg.types.json import Jsonb

from postroad.exchange.content import digest_of
from postroad.exchange.desk import Desk
from postroad.exchange.errors import ExchangeError, StorageFailed, was_refused
from postroad.exchange.files import temporary_name
from postroad.exchange.placement import Move
from postroad.exchange.protocol import CANCELLED, Reply, Uploaded, Wish, described, judge
from postroad.exchange.reading import Wanted, read_inline_many

__all__ = ["Processes"]

START = (
    "select exchange.start_process(p_epoch => %s, p_now => %s, p_client => %s, p_database => %s,"
    " p_recipient => %s, p_attempt => %s, p_max_files => %s, p_max_bytes => %s,"
    " p_senders => %s::text[], p_resolved => %s, p_marker_seq => %s)"
)
CHOOSE = (
    "select exchange.choose_files(p_epoch => %s, p_now => %s, p_client => %s, p_process => %s,"
    " p_files => %s::text[], p_reason => %s, p_delay => %s)"
)
PREPARE = (
    "select exchange.prepare(p_epoch => %s, p_now => %s, p_client => %s, p_process => %s,"
    " p_manifest => %s, p_replies => %s, p_results => %s)"
)
END = (
    "select exchange.end_process(p_epoch => %s, p_now => %s, p_call => %s, p_client => %s,"
    " p_process => %s, p_outcome => %s, p_error => %s)"
)
RENEW = "select exchange.renew_process(p_epoch => %s, p_now => %s, p_client => %s, p_process => %s)"
UPLOAD = (
    "select exchange.upload_reply(p_epoch => %s, p_client => %s, p_process => %s, p_name => %s,"
    " p_recipient => %s, p_size => %s, p_sha256 => %s, p_media_type => %s, p_temporary => %s)"
)
END_EMPTY = "select exchange.end_empty(p_epoch => %s, p_now => %s, p_process => %s)"
FIND = "select p.database_id, p.client_id from exchange.process p where p.id = %s"
SHOWN = "select exchange.process_shown(p_process => %s)"

SHOWN_OF_A_FILE = ("name", "id", "sender", "sequence", "size", "sha256")
INLINE_TOTAL_BYTES = 4 * 1024 * 1024
PICKS_MOST = 20
REMEMBERED_MOST = 10_000

Call = Literal["commit", "abort", "fail", "resolve", "release"]
LOGGED = {
    "abort": "process_aborted",
    "fail": "process_failed",
    "resolve": "process_resolved",
    "release": "process_released",
}

logger = logging.getLogger(__name__)


class Processes:
    """The calls of one process, from its start to its end."""

    def __init__(self, desk: Desk, base_path: str) -> None:
        self._desk = desk
        self._base_path = base_path

    async def start(self, wish: Wish) -> dict[str, Any]:
        """API_1. Returns the protocol's answer."""
        desk = self._desk
        if not await desk.is_known(wish.database) and not desk.settings.creates_databases:
            await desk.know_database(wish.database)
        for _ in range(PICKS_MOST):
            answer = await self._start_once(wish)
            is_new, is_torn = answer.pop("is_new", False), answer.pop("is_torn", False)
            if is_torn and not is_new:
                # What was handed out before has a bad file now: the process was cancelled.
                continue
            if answer["status"] != "STARTED" or not is_new or answer["process"]["files"]:
                return answer
            # Every file it picked was corrupt: it ends, and the next ones are picked.
            await desk.journal.change(
                END_EMPTY, desk.epoch, desk.time.now(), answer["process"]["id"]
            )
        return self._idle(None)

    async def _start_once(self, wish: Wish) -> dict[str, Any]:
        desk = self._desk
        if desk.is_full and not wish.resolved:
            desk.refuse_when_full()
        answer = await desk.journal.change(
            START,
            desk.epoch,
            desk.time.now(),
            wish.client,
            wish.database,
            wish.recipient,
            wish.attempt,
            wish.max_files,
            wish.max_bytes,
            list(wish.senders) if wish.senders else None,
            Jsonb(wish.resolved or {}),
            wish.marker_seq,
        )
        settled = answer.pop("settled", None)
        if settled:
            await desk.follow_pending(settled)
        if answer["status"] == "STARTED":
            started = answer["process"]
            self._remember(started["id"], started["database"], started["owner"])
            count = len(answer["process"]["files"])
            is_new = answer.get("is_new", False)
            answer["process"] = await self._handed(answer["process"], is_new=is_new)
            answer["is_torn"] = len(answer["process"]["files"]) < count
        elif answer["status"] == "IDLE":
            return self._idle(answer.get("retry_after"))
        return dict(answer)

    def _idle(self, seconds: float | None) -> dict[str, Any]:
        usual = self._desk.settings.idle_retry.total_seconds()
        wait = usual if seconds is None else max(1.0, min(usual, seconds))
        return {"status": "IDLE", "retry_after": round(wait)}

    async def _handed(self, process: dict[str, Any], *, is_new: bool) -> dict[str, Any]:
        """Turn what the journal knows of a process into what its owner gets."""
        facts = process["files"]
        contents: list[dict[str, Any] | None] = [{} for _ in facts]
        if process["state"] == "STARTED" and facts:
            wanted = self._wanted(process["id"], facts)
            contents = await read_inline_many(self._desk, wanted, is_new=is_new)
        files = []
        for fact, content in zip(facts, contents, strict=True):
            if content is None:
                continue
            shown = {key: fact[key] for key in SHOWN_OF_A_FILE}
            if fact["order"] is not None:
                shown["order"] = fact["order"]
            if fact["is_group"]:
                shown["is_group"] = True
            files.append(shown | content)
        return {
            **{key: value for key, value in process.items() if key not in ("files", "deadline")},
            "files": files,
        }

    def _wanted(self, process: str, facts: Sequence[dict[str, Any]]) -> list[Wanted]:
        wanted = []
        budget = INLINE_TOTAL_BYTES
        for fact in facts:
            limit = min(self._desk.settings.inline_bytes, budget)
            href = f"{self._base_path}/processes/{process}/files/{fact['name']}"
            wanted.append(Wanted(Move.of(fact), href, limit))
            if fact["size"] <= limit:
                budget -= fact["size"]
        return wanted

    async def choose(
        self,
        client: str,
        process: str,
        files: Sequence[str],
        reason: str | None,
        delay: float | None,
    ) -> dict[str, Any]:
        """API_2. Returns OK or CANCELLED."""
        desk = self._desk
        answer = await desk.journal.change(
            CHOOSE, desk.epoch, desk.time.now(), client, process, list(files), reason, delay
        )
        verdict = judge(answer, process)
        moves = [Move.of(fact) for fact in answer.get("moves", ())]
        if moves:
            # What was refused too often was parked.
            await desk.follow(moves)
        return verdict

    async def prepare(
        self,
        client: str,
        process: str,
        replies: Sequence[Reply],
        results: dict[str, dict[str, Any]],
    ) -> dict[str, Any]:
        """API_3. Returns OK or CANCELLED; replies are durable before it does."""
        desk = self._desk
        found = await self.find(process)
        if found is None:
            return dict(CANCELLED)
        database, _ = found
        manifest = digest_of(
            sorted(
                (reply.name, reply.recipient, reply.reply_to, reply.sha256) for reply in replies
            ),
            results,
        )
        temporaries: list[str | None] = [
            None if reply.content is None else temporary_name() for reply in replies
        ]
        used: set[str] = set()
        try:
            await asyncio.gather(
                *(
                    desk.in_thread(
                        desk.storage.write, database, "Prepared", temporary, reply.content.stored
                    )
                    for reply, temporary in zip(replies, temporaries, strict=True)
                    if reply.content is not None and temporary is not None
                )
            )
            used = {name for name in temporaries if name is not None}
            try:
                answer = await desk.journal.change(
                    PREPARE,
                    desk.epoch,
                    desk.time.now(),
                    client,
                    process,
                    manifest,
                    Jsonb(
                        [
                            {**described(reply, temporary), "place": place}
                            for place, (reply, temporary) in enumerate(
                                zip(replies, temporaries, strict=True)
                            )
                        ]
                    ),
                    Jsonb(results),
                )
            except BaseException as failure:
                # Unless it was refused, a plan that names the files may be committed: they stay.
                if was_refused(failure):
                    used = set()
                raise
            moves = [Move.of(fact) for fact in answer.get("moves", ())]
            used = {move.temporary for move in moves if move.temporary}
            verdict = judge(answer, process)
            await self._place_replies(moves)
        finally:
            await self.drop(database, [name for name in temporaries if name and name not in used])
        return verdict

    async def _place_replies(self, moves: Sequence[Move]) -> None:
        """Give replies their names. Raises StorageFailed: OK would promise what is not there."""
        lost = await self._desk.place(moves)
        if lost:
            names = ", ".join(move.name for move in lost)
            raise StorageFailed(
                f"files were lost while they were stored: {names}", hint="send the request again"
            )
        self._desk.marks.place_later(moves)

    async def upload(
        self,
        client: str,
        process: str,
        name: str,
        recipient: str | None,
        uploaded: Uploaded,
    ) -> dict[str, Any]:
        """A reply by itself, already written under its temporary name in Prepared."""
        desk = self._desk
        is_used = True
        try:
            try:
                answer = await desk.journal.change(
                    UPLOAD,
                    desk.epoch,
                    client,
                    process,
                    name,
                    recipient,
                    uploaded.size,
                    uploaded.sha256,
                    uploaded.media_type,
                    uploaded.temporary,
                )
            except BaseException as failure:
                # Unless it was refused, a plan that names the file may be committed: it stays.
                is_used = not was_refused(failure)
                raise
            moves = [Move.of(fact) for fact in answer.get("moves", ())]
            is_used = any(move.temporary == uploaded.temporary for move in moves)
            verdict = judge(answer, process)
            await self._place_replies(moves)
        finally:
            if not is_used:
                await self.drop(uploaded.database, [uploaded.temporary])
        return verdict

    async def end(
        self,
        call: Call,
        client: str | None,
        process: str,
        *,
        outcome: str | None = None,
        error: str | None = None,
    ) -> dict[str, Any]:
        """API_4, API_5, API_6, resolve, release: record the outcome, then move the files."""
        desk = self._desk
        answer = await desk.journal.change(
            END, desk.epoch, desk.time.now(), call, client, process, outcome, error
        )
        verdict = judge(answer, process)
        if call in LOGGED:
            facts = {"process_id": process, "client": client, "outcome": outcome, "reason": error}
            logger.warning(LOGGED[call], extra=facts)
        moves = [Move.of(fact) for fact in answer.get("moves", ())]
        if moves or answer.get("state") in ("CLEANUP", "FAILED"):
            # The outcome is recorded, which is what the caller has to know: files that cannot be
            # moved now are moved at a later sweep, and an alert reports them.
            with contextlib.suppress(ExchangeError, psycopg.Error):
                await desk.follow(moves, process=process)
        return verdict

    async def renew(self, client: str, process: str) -> dict[str, Any]:
        """Give the owner more time."""
        desk = self._desk
        answer = await desk.journal.call(RENEW, desk.epoch, desk.time.now(), client, process)
        return judge(answer, process)

    async def shown(self, process: str) -> dict[str, Any] | None:
        """Return a process with its history, as the journal knows it."""
        found: dict[str, Any] | None = await self._desk.journal.call(SHOWN, process)
        return found

    async def find(self, process: str) -> tuple[str, str] | None:
        """Return the database and the owner of a process, None if there is no such process."""
        found = self._desk.processes.get(process)
        if found is None:
            rows = await self._desk.journal.rows(FIND, process)
            if not rows:
                return None
            found = rows[0]["database_id"], rows[0]["client_id"]
            self._remember(process, *found)
        return found

    def _remember(self, process: str, database: str, owner: str) -> None:
        known = self._desk.processes
        known[process] = database, owner
        while len(known) > REMEMBERED_MOST:
            del known[next(iter(known))]

    async def drop(self, database: str, temporaries: Sequence[str]) -> None:
        """Remove temporary files that nothing names."""
        for name in temporaries:
            with contextlib.suppress(ExchangeError):
                await self._desk.in_thread(self._desk.storage.unlink, database, "Prepared", name)
