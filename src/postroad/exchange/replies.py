"""What a client fetches: its replies, which it acknowledges, and the status of its messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from postroad.exchange.desk import Desk
from postroad.exchange.errors import MessageNotFound
from postroad.exchange.placement import Move
from postroad.exchange.reading import Wanted, read_inline_many, stream

__all__ = ["Replies"]

REPLIES = (
    "select * from exchange.replies(p_recipient => %s, p_limit => %s, p_max_bytes => %s,"
    " p_after => %s)"
)
REPLY = (
    "select exchange._move(r, null) as move from exchange.reply(p_recipient => %s, p_id => %s) r"
)
ACK = "select exchange.ack(p_epoch => %s, p_recipient => %s, p_id => %s)"

STATUS = "select exchange.message_status(p_sender => %s, p_id => %s)"

SHOWN = (
    "id",
    "name",
    "database",
    "sender",
    "recipient",
    "sequence",
    "reply_to",
    "process",
    "size",
    "sha256",
    "created_at",
)


class Replies:
    """The mailbox of a client."""

    def __init__(self, desk: Desk, base_path: str) -> None:
        self._desk = desk
        self._base_path = base_path

    async def fetch(
        self, recipient: str, limit: int, max_bytes: int, after: int | None
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Return replies, oldest first, and the number after which the next page begins."""
        rows = await self._desk.journal.rows(REPLIES, recipient, limit, max_bytes, after)
        wanted = [
            Wanted(
                Move.of({**row, "name": row["file_name"]}),
                f"{self._base_path}/messages/{row['id']}/content",
                self._desk.settings.inline_bytes,
            )
            for row in rows
        ]
        # They come from several databases; one whose folder cannot be read hides no other's.
        contents = await read_inline_many(self._desk, wanted, skips_unreadable=True)
        found = [
            {key: row[key] for key in SHOWN} | content
            for row, content in zip(rows, contents, strict=True)
            if content is not None
        ]
        return found, rows[-1]["number"] if rows and rows[-1]["has_more"] else None

    async def status(self, sender: str, id_: str) -> dict[str, Any]:
        """Return what became of a message, for its sender. Raises MessageNotFound."""
        found: dict[str, Any] | None = await self._desk.journal.call(STATUS, sender, id_)
        if found is None:
            raise MessageNotFound(f"{sender} has sent no message {id_}")
        return found

    async def content(self, recipient: str, id_: str) -> tuple[Move, AsyncIterator[bytes]]:
        """Return a reply's bytes, chunk by chunk. Raises MessageNotFound."""
        rows = await self._desk.journal.rows(REPLY, recipient, id_)
        if not rows:
            raise MessageNotFound(f"there is no message {id_} for {recipient}")
        move = Move.of(rows[0]["move"])
        return move, stream(self._desk, move)

    async def ack(self, recipient: str, id_: str) -> None:
        """Take note that the recipient has it; repeatable. Raises MessageNotFound."""
        answer = await self._desk.journal.call(ACK, self._desk.epoch, recipient, id_)
        if answer["status"] == "MISSING":
            raise MessageNotFound(f"there is no message {id_} for {recipient}")
        moves = [Move.of(fact) for fact in answer["moves"]]
        if moves:
            await self._desk.place(moves)
            self._desk.marks.place_later(moves)
