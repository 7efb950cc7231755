"""The mailbox of a client: its replies, and the status of its messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from postroad.exchange.errors import MessageNotFound
from postroad.exchange.mover import Mover
from postroad.exchange.moves import Move
from postroad.exchange.reader import Wanted, read_inline_many

REPLY = (
    "select exchange._move(r, null) as move from exchange.reply(p_recipient => %s, p_id => %s) r"
)
REPLIES = (
    "select r.*, m.object from exchange.replies(%s, %s, %s, %s) r"
    " join exchange.message m on m.number = r.number order by r.number"
)

SHOWN = (
    *("id", "name", "database", "sender", "recipient", "sequence"),
    *("reply_to", "process", "size", "sha256", "created_at"),
)


@dataclass(frozen=True)
class Replies:
    """The mailbox of a client."""

    mover: Mover
    base_path: str
    inline_bytes: int

    async def fetch(
        self, recipient: str, limit: int, max_bytes: int, after: int | None
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Return replies, oldest first, and the number after which the next page begins."""
        rows = await self.mover.journal.rows(REPLIES, recipient, limit, max_bytes, after)
        wanted = [
            Wanted(
                Move.of({**row, "name": row["file_name"]}),
                f"{self.base_path}/messages/{row['id']}/content",
                self.inline_bytes,
            )
            for row in rows
        ]
        # They come from several databases; an unreadable folder hides only its own files. A store
        # has all of them: without it there is no answer.
        skips = self.mover.storage.objects is None
        contents = await read_inline_many(self.mover, wanted, skips_unreadable=skips)
        found = [
            {key: row[key] for key in SHOWN} | content
            for row, content in zip(rows, contents, strict=True)
            if content is not None
        ]
        return found, rows[-1]["number"] if rows and rows[-1]["has_more"] else None

    async def status(self, sender: str, id_: str) -> dict[str, Any]:
        """Return the status of a message, for its sender. Raises MessageNotFound."""
        found: dict[str, Any] | None = await self.mover.journal.call("message_status", sender, id_)
        if found is None:
            raise MessageNotFound(f"{sender} has sent no message {id_}")
        return found

    async def find(self, recipient: str, id_: str) -> Move:
        """Return the file of a reply. Raises MessageNotFound."""
        rows = await self.mover.journal.rows(REPLY, recipient, id_)
        if not rows:
            raise MessageNotFound(f"there is no message {id_} for {recipient}")
        return Move.of(rows[0]["move"])

    async def ack(self, recipient: str, id_: str) -> None:
        """Acknowledge a reply; repeatable. Raises MessageNotFound."""
        answer = await self.mover.journal.call("ack", self.mover.journal.epoch, recipient, id_)
        if answer["status"] == "MISSING":
            raise MessageNotFound(f"there is no message {id_} for {recipient}")
        if moves := [Move.of(fact) for fact in answer["moves"]]:
            await self.mover.follow(moves, is_awaited=False)
