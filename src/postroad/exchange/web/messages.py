"""Messages: sent, fetched, acknowledged."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from postroad.exchange.content import content_of
from postroad.exchange.errors import MessageConflict, MessageNotFound
from postroad.exchange.intake import Arrival, Intake
from postroad.exchange.journal import REPLIES
from postroad.exchange.mover import Mover
from postroad.exchange.moves import Move
from postroad.exchange.operations import is_id, refuse_requeue
from postroad.exchange.reader import Wanted, read_inline_many
from postroad.exchange.web import answers
from postroad.exchange.web.identity import Client
from postroad.exchange.web.models import Message, Requeue, Size
from postroad.exchange.web.values import BODY, CONTENT, Endpoints, answer, file_answer
from postroad.web.cursors import decode_cursor, encode_cursor
from postroad.web.pages import Page

REPLY = (
    "select exchange._move(r, null) as move from exchange.reply(p_recipient => %s, p_id => %s) r"
)
SHOWN = (
    *("id", "name", "database", "sender", "recipient", "sequence"),
    *("reply_to", "process", "size", "sha256", "created_at"),
)


def add_messages(call: Endpoints, intake: Intake, mover: Mover, inline_bytes: int) -> None:
    """Add the calls of messages and of the mailbox of a client."""
    journal = mover.journal
    accepted = {
        201: {"model": answers.Accepted},
        200: {"model": answers.Accepted, "description": "A repeated call; the same answer."},
    }

    @call("POST", "/messages", accepted, 403, 404, 409, *BODY, 507, status_code=201)
    async def post_message(caller: Client, given: Message) -> Response:
        """Send a message or a group; durable when answered, repeatable by its id."""
        caller.require("send", given.database)
        content = content_of(given)
        address = given.database, given.id, given.recipient, given.order
        taken = await intake.take(Arrival(caller.id, *address, content))
        return answer(
            {
                "status": "OK",
                "id": given.id,
                "database": given.database,
                "recipient": given.recipient,
                "sender": caller.id,
                "sequence": taken["sequence"],
                "name": taken["file_name"],
                "size": content.size,
                "sha256": content.sha256,
            },
            201 if taken["answer"] == "new" else 200,
        )

    @call("GET", "/messages", Page[answers.ReplyWaiting], 422)
    async def get_messages(
        caller: Client,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        max_bytes: Annotated[Size, Query()] = 20 * 1024 * 1024,
        cursor: str | None = None,
    ) -> Response:
        """Return the replies addressed to the caller, oldest first."""
        after = decode_cursor(cursor, int)[0] if cursor else None
        rows = await journal.rows(REPLIES, caller.id, limit, max_bytes, after)
        wanted = [
            Wanted(
                Move.of({**row, "name": row["file_name"]}),
                f"{call.prefix}/messages/{row['id']}/content",
                inline_bytes,
            )
            for row in rows
        ]
        skips = mover.storage.objects is None
        contents = await read_inline_many(mover, wanted, skips_unreadable=skips)
        items = [
            {key: row[key] for key in SHOWN} | content
            for row, content in zip(rows, contents, strict=True)
            if content is not None
        ]
        last = encode_cursor(rows[-1]["number"]) if rows and rows[-1]["has_more"] else None
        return answer({"items": items, "cursor": last})

    @call("GET", "/messages/{id}/status", answers.MessageStatus, 404)
    async def get_status(caller: Client, id: str) -> Response:
        """Return the state of a message that the caller has sent, with the ERP's error."""
        found = await journal.call("message_status", caller.id, known_message(id))
        if found is None:
            raise MessageNotFound(f"{caller.id} has sent no message {id}")
        return answer(found)

    @call("GET", "/messages/{id}/content", CONTENT, 404)
    async def get_content(caller: Client, id: str) -> Response:
        """Return the bytes of a large reply."""
        rows = await journal.rows(REPLY, caller.id, known_message(id))
        if not rows:
            raise MessageNotFound(f"there is no message {id} for {caller.id}")
        return file_answer(mover, Move.of(rows[0]["move"]))

    @call("DELETE", "/messages/{id}", answers.Acknowledged, 404)
    async def delete_message(caller: Client, id: str) -> Response:
        """Acknowledge a reply; it goes to Log. Repeatable."""
        found = await journal.call("ack", journal.epoch, caller.id, known_message(id))
        if found["status"] == "MISSING":
            raise MessageNotFound(f"there is no message {id} for {caller.id}")
        if moves := Move.planned(found):
            await mover.follow(moves, is_awaited=False)
        return answer({"status": "OK"})

    administrate = replace(call, tag="administration")

    @administrate("POST", "/messages/{id}/requeue", answers.Requeued, 403, 404, 409, *BODY)
    async def requeue(caller: Client, id: str, given: Requeue | None = None) -> Response:
        """Hand a parked or deferred message out again."""
        caller.require_admin()
        given = given or Requeue()
        selected = given.sender, given.database, given.recipient
        found = await journal.call("requeue", journal.epoch, known_message(id), *selected)
        refuse_requeue(found, id)
        moves = Move.planned(found)
        if await mover.place(moves):
            raise MessageConflict(
                f"the file of message {id} is missing; it stays parked",
                hint="put the right file into the folder Error, then requeue it again",
            )
        await mover.record(moves)
        return answer({"status": "OK", "state": found["state"]})


def known_message(text: str) -> str:
    """Return the id of a message. Raises MessageNotFound for a text that cannot be one."""
    if not is_id(text):
        raise MessageNotFound("there is no such message")
    return text
