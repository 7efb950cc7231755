"""Processes: API_1 to API_6, renew, resolve and release. The package's docstring draws the states.

Each call is one transaction of the journal, then its files are moved, then the caller gets the
answer. A crash leaves either the old state, or the new one with moves that the redo finishes.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import psycopg
from psycopg.types.json import Jsonb

from postroad.errors import PostroadError
from postroad.exchange import errors
from postroad.exchange.content import digest_of
from postroad.exchange.journal import NOW
from postroad.exchange.mover import Mover
from postroad.exchange.moves import Move
from postroad.exchange.operations import judge
from postroad.exchange.reader import Wanted, read_inline_many
from postroad.settings.exchange import ExchangeSettings

if TYPE_CHECKING:
    from postroad.exchange.web.models import Prepare, Start

FIND = "select p.database_id, p.client_id from exchange.process p where p.id = %s"

NAMED_OF_A_REPLY = ("name", "recipient", "reply_to", "sha256")
SHOWN_OF_A_FILE = ("name", "id", "sender", "sequence", "size", "sha256")
INLINE_TOTAL_BYTES = 4 * 1024 * 1024
MAX_PICKS = 20
MAX_REMEMBERED = 10_000

Call = Literal["commit", "abort", "fail", "resolve", "release"]
LOGGED = {
    "abort": "process_aborted",
    "fail": "process_failed",
    "resolve": "process_resolved",
    "release": "process_released",
}

CANCELLED = {"status": "CANCELLED"}

logger = logging.getLogger(__name__)


def is_process_id(text: str) -> bool:
    """Check whether a text can be the id of a process; any other id is unknown."""
    return re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text) is not None


class Uploaded(NamedTuple):
    """A reply that was written under its temporary name in Prepared."""

    size: int
    sha256: str
    media_type: str
    temporary: str


@dataclass
class Processes:
    """The calls of a process, from its start to its end."""

    settings: ExchangeSettings
    mover: Mover
    base_path: str
    # The database and the owner of recent processes.
    _owners: dict[str, tuple[str, str]] = field(default_factory=dict)

    async def start(self, client: str, recipient: str, given: Start) -> dict[str, Any]:
        """API_1. Returns the protocol's answer."""
        for _ in range(MAX_PICKS):
            answer = await self._start_once(client, recipient, given)
            is_new, is_torn = answer.pop("is_new", False), answer.pop("is_torn", False)
            if is_torn and not is_new:
                # A file that was handed out before is now corrupt: the process was cancelled.
                continue
            if answer["status"] != "STARTED" or not is_new or answer["process"]["files"]:
                return answer
            # All files of the process are corrupt: it is ended, and the next files are picked.
            await self.mover.journal.decide("end_empty", NOW, answer["process"]["id"])
        return self._idle(None)

    async def _start_once(self, client: str, recipient: str, given: Start) -> dict[str, Any]:
        if not given.resolved:
            self.mover.storage.refuse_when_full()
        max_files, max_bytes = self.settings.max_files, self.settings.max_bytes
        answer = await self.mover.journal.decide(
            "start_process",
            NOW,
            *(client, given.database, recipient, given.attempt),
            min(given.max_files or max_files, max_files),
            min(given.max_bytes or max_bytes, max_bytes),
            given.senders or None,
            Jsonb(given.resolved or {}),
            given.marker_seq,
        )
        if settled := answer.pop("settled", None):
            await self.mover.follow_pending(settled)
        if answer["status"] == "IDLE":
            if answer.get("is_unknown") and not self.settings.creates_databases:
                await self.mover.open(given.database, may_create=False)
            return self._idle(answer.get("retry_after"))
        if answer["status"] == "STARTED":
            process, is_new = answer["process"], answer.get("is_new", False)
            self._remember(process["id"], process["database"], process["owner"])
            try:
                await self.mover.open(given.database, is_known=True)
            except errors.ExchangeError:
                # Its folders cannot be used: the attempt may be repeated, no message has failed.
                if is_new:
                    await self.mover.journal.decide("end_empty", NOW, process["id"])
                raise
            answer["process"] = await self._handed(process, is_new)
            answer["is_torn"] = len(answer["process"]["files"]) < len(process["files"])
        return dict(answer)

    def _idle(self, seconds: float | None) -> dict[str, Any]:
        usual = self.settings.idle_retry.total_seconds()
        wait = usual if seconds is None else max(1.0, min(usual, seconds))
        return {"status": "IDLE", "retry_after": round(wait)}

    async def _handed(self, process: dict[str, Any], is_new: bool) -> dict[str, Any]:
        """Return a process as its owner gets it, without files that were quarantined."""
        facts = process["files"]
        contents: list[dict[str, Any] | None] = [{} for _ in facts]
        if process["state"] == "STARTED" and facts:
            wanted = self._wanted(process["id"], [{**fact, "is_new": is_new} for fact in facts])
            contents = await read_inline_many(self.mover, wanted)
        files = []
        for fact, content in zip(facts, contents, strict=True):
            if content is not None:
                shown = {key: fact[key] for key in SHOWN_OF_A_FILE}
                order = {} if fact["order"] is None else {"order": fact["order"]}
                group = {"is_group": True} if fact["is_group"] else {}
                files.append(shown | order | group | content)
        kept = {key: value for key, value in process.items() if key not in ("files", "deadline")}
        return {**kept, "files": files}

    def _wanted(self, process: str, facts: Sequence[dict[str, Any]]) -> list[Wanted]:
        wanted = []
        budget = INLINE_TOTAL_BYTES
        for fact in facts:
            limit = min(self.settings.inline_bytes, budget)
            href = f"{self.base_path}/processes/{process}/files/{fact['name']}"
            wanted.append(Wanted(Move.of(fact), href, limit))
            if fact["size"] <= limit:
                budget -= fact["size"]
        return wanted

    async def prepare(self, client: str, process: str, given: Prepare) -> dict[str, Any]:
        """API_3. Returns OK or CANCELLED; replies are durable before it does."""
        replies = [(reply, reply.stored()) for reply in given.replies]
        results = {name: one.model_dump(exclude_none=True) for name, one in given.results.items()}
        mover, storage = self.mover, self.mover.storage
        prefixed = mover.opened_by_prefix.get(process[:8], "")
        database, _ = self._owners.get(process, (prefixed, ""))
        if not is_process_id(process):
            return dict(CANCELLED)
        if replies and not database:
            if (found := await self.find(process)) is None:
                return dict(CANCELLED)
            database, _ = found
            await mover.open(database, is_known=True)
        contents: dict[str, bytes] = {}
        items: list[dict[str, Any]] = []
        for place, (reply, content) in enumerate(replies):
            item = reply.model_dump(include={*NAMED_OF_A_REPLY})
            if content is not None:
                item |= {"sha256": content.sha256, "temporary": storage.temporary_name()}
                item |= {"size": content.size, "media_type": content.media_type}
                contents[item["temporary"]] = content.stored
            items.append(item | {"is_group": False, "place": place, "database": database})
        named = sorted([item[key] for key in NAMED_OF_A_REPLY] for item in items)
        recorded = digest_of(named, results), Jsonb(items), Jsonb(results)
        write = functools.partial(mover.in_thread, storage.write, database, "Prepared")
        try:
            await asyncio.gather(*(write(name, stored) for name, stored in contents.items()))
        except BaseException:
            await mover.drop(database, "Prepared", list(contents))
            raise
        parameters = NOW, client, process, *recorded
        verdict = await self.store(database, process, list(contents), "prepare", *parameters)
        if verdict["status"] == "ELSEWHERE":
            # Another database whose processes have ids with this prefix.
            self._remember(process, verdict["database"], client)
            return await self.prepare(client, process, given)
        return verdict

    async def store(
        self, database: str, process: str, temporaries: list[str], function: str, *parameters: Any
    ) -> dict[str, Any]:
        """Record replies and rename their files; remove the files that the journal does not name.

        Raises StorageFailed where a file is missing: OK would promise a reply that is lost.
        """
        used = set(temporaries)
        try:
            try:
                answer = await self.mover.journal.decide(function, *parameters)
            except BaseException as failure:
                if errors.was_refused(failure):
                    used = set()
                raise
            moves = Move.planned(answer)
            used = {move.temporary for move in moves if move.temporary}
            verdict = answer if answer["status"] == "ELSEWHERE" else judge(answer, process)
            if lost := await self.mover.place(moves):
                names = ", ".join(move.name for move in lost)
                raise errors.StorageFailed(
                    f"files were lost while they were stored: {names}",
                    hint="send the request again",
                )
            self.mover.record_later(moves)
        finally:
            unused = [name for name in temporaries if name not in used]
            await self.mover.drop(database, "Prepared", unused)
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
        answer = await self.mover.journal.decide(
            "end_process", NOW, call, client, process, outcome, error
        )
        verdict = judge(answer, process)
        if call in LOGGED:
            facts = {"process_id": process, "client": client, "outcome": outcome, "reason": error}
            logger.warning(LOGGED[call], extra=facts)
        moves = Move.planned(answer)
        if moves or answer.get("state") in ("CLEANUP", "FAILED"):
            with contextlib.suppress(PostroadError, psycopg.Error):
                await self.mover.follow(moves, [process], is_awaited=False)
        return verdict

    async def shown(self, process: str) -> dict[str, Any]:
        """Return a process with its history, as the journal has it. Raises ProcessNotFound."""
        found: dict[str, Any] | None = await self.mover.journal.call("process_shown", process)
        if found is None:
            raise errors.ProcessNotFound("there is no such process")
        return found

    async def find(self, process: str) -> tuple[str, str] | None:
        """Return the database and the owner of a process, None if there is no such process."""
        if process not in self._owners:
            rows = await self.mover.journal.rows(FIND, process) if is_process_id(process) else ()
            if not rows:
                return None
            self._remember(process, rows[0]["database_id"], rows[0]["client_id"])
        return self._owners[process]

    def _remember(self, process: str, database: str, owner: str) -> None:
        self._owners[process] = database, owner
        while len(self._owners) > MAX_REMEMBERED:
            del self._owners[next(iter(self._owners))]
