"""Messages: sent, fetched, acknowledged."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from postroad.exchange.content import content_of
from postroad.exchange.errors import MessageNotFound
from postroad.exchange.intake import Arrival, Intake
from postroad.exchange.names import is_id
from postroad.exchange.replies import Replies
from postroad.exchange.web.answers import Accepted, Acknowledged, MessageStatus, ReplyWaiting
from postroad.exchange.web.identity import Client
from postroad.exchange.web.models import Message
from postroad.exchange.web.values import BODY, FILE_CONTENT, Endpoints, answer, file_answer
from postroad.web.cursors import decode_cursor, encode_cursor
from postroad.web.pages import Page

MAX_INTEGER = 2**63 - 1


def add_messages(call: Endpoints, intake: Intake, replies: Replies) -> None:
    """Add the calls of messages."""
    accepted = {
        201: {"model": Accepted},
        200: {"model": Accepted, "description": "A repeated call; the same answer."},
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
                "sequence": taken.sequence,
                "name": taken.name,
                "size": content.size,
                "sha256": content.sha256,
            },
            201 if taken.is_new else 200,
        )

    @call("GET", "/messages", Page[ReplyWaiting], 422)
    async def get_messages(
        caller: Client,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        max_bytes: Annotated[int, Query(ge=1, le=MAX_INTEGER)] = 20 * 1024 * 1024,
        cursor: str | None = None,
    ) -> Response:
        """Return the replies addressed to the caller, oldest first."""
        after = decode_cursor(cursor, int)[0] if cursor else None
        items, last = await replies.fetch(caller.id, limit, max_bytes, after)
        return answer({"items": items, "cursor": None if last is None else encode_cursor(last)})

    @call("GET", "/messages/{id}/status", MessageStatus, 404)
    async def get_status(caller: Client, id: str) -> Response:
        """Return the state of a message that the caller has sent, with the ERP's error."""
        return answer(await replies.status(caller.id, known_message(id)))

    @call("GET", "/messages/{id}/content", FILE_CONTENT, 404)
    async def get_content(caller: Client, id: str) -> Response:
        """Return the bytes of a large reply."""
        return file_answer(replies.mover, await replies.find(caller.id, known_message(id)))

    @call("DELETE", "/messages/{id}", Acknowledged, 404)
    async def delete_message(caller: Client, id: str) -> Response:
        """Acknowledge a reply; it goes to Log. Repeatable."""
        await replies.ack(caller.id, known_message(id))
        return answer({"status": "OK"})


def known_message(text: str) -> str:
    """Return the id of a message. Raises MessageNotFound for a text that cannot be one."""
    if not is_id(text):
        raise MessageNotFound("there is no such message")
    return text
