"""Messages: sent, fetched, acknowledged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, NamedTuple

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from postroad.exchange.content import content_of
from postroad.exchange.errors import MessageNotFound
from postroad.exchange.intake import Arrival, Intake
from postroad.exchange.names import is_id
from postroad.exchange.replies import Replies
from postroad.exchange.web.answers import Accepted, Acknowledged, MessageStatus, ReplyWaiting
from postroad.exchange.web.identity import Identity
from postroad.exchange.web.models import Message
from postroad.exchange.web.values import FILE_CONTENT, answer, body_of, described, parsed
from postroad.web import Page, decode_cursor, encode_cursor, problem_responses

__all__ = ["message_routes"]

MAX_BYTES_MOST = 2**63 - 1


class MessageRoutes(NamedTuple):
    """The routes, and the handler that comes most often."""

    routes: APIRouter
    post: Callable[[Request], Awaitable[Response]]


def message_routes(identity: Identity, intake: Intake, replies: Replies) -> MessageRoutes:
    """Return the routes of messages."""
    routes = APIRouter(tags=["messages"])

    @routes.post(
        "/messages",
        status_code=201,
        response_model=None,
        openapi_extra=described(Message),
        responses={
            201: {"model": Accepted},
            200: {"model": Accepted, "description": "A repeated call; the same answer."},
            **problem_responses(401, 403, 404, 409, 413, 415, 422, 503, 507),
        },
    )
    async def post_message(request: Request) -> Response:
        """Send a message or a group; durable when answered, repeatable by its id."""
        caller = await identity.caller(request)
        async with body_of(request) as body:
            given = parsed(Message, body)
            del body
            caller.require("send", given.database)
            content = content_of(given)
        arrival = Arrival(
            caller.id, given.database, given.id, given.recipient, given.order, content
        )
        taken = await intake.take(arrival)
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

    @routes.get(
        "/messages",
        response_model=None,
        responses={200: {"model": Page[ReplyWaiting]}, **problem_responses(401, 422, 503)},
    )
    async def get_messages(
        request: Request,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        max_bytes: Annotated[int, Query(ge=1, le=MAX_BYTES_MOST)] = 20 * 1024 * 1024,
        cursor: str | None = None,
    ) -> Response:
        """Return the replies addressed to the caller, oldest first."""
        caller = await identity.caller(request)
        after = decode_cursor(cursor, int)[0] if cursor else None
        if after is not None and not 0 <= after < MAX_BYTES_MOST:
            after = 0
        items, last = await replies.fetch(caller.id, limit, max_bytes, after)
        return answer({"items": items, "cursor": None if last is None else encode_cursor(last)})

    @routes.get(
        "/messages/{id}/status",
        response_model=None,
        responses={200: {"model": MessageStatus}, **problem_responses(401, 404, 503)},
    )
    async def get_status(request: Request, id: str) -> Response:
        """Return what became of a message that the caller has sent, with the ERP's error."""
        caller = await identity.caller(request)
        _refuse_no_id(id)
        return answer(await replies.status(caller.id, id))

    @routes.get(
        "/messages/{id}/content",
        response_model=None,
        responses={**FILE_CONTENT, **problem_responses(401, 404, 503)},
    )
    async def get_content(request: Request, id: str) -> Response:
        """Return the bytes of a large reply."""
        caller = await identity.caller(request)
        _refuse_no_id(id)
        move, chunks = await replies.content(caller.id, id)
        return StreamingResponse(
            chunks,
            media_type=move.media_type or "application/json",
            headers={"Content-Length": str(move.size), "X-Content-SHA256": move.sha256},
        )

    @routes.delete(
        "/messages/{id}",
        response_model=None,
        responses={200: {"model": Acknowledged}, **problem_responses(401, 404, 503)},
    )
    async def delete_message(request: Request, id: str) -> Response:
        """Acknowledge a reply; it goes to Log. Repeatable."""
        caller = await identity.caller(request)
        _refuse_no_id(id)
        await replies.ack(caller.id, id)
        return answer({"status": "OK"})

    return MessageRoutes(routes, post_message)


def _refuse_no_id(text: str) -> None:
    if not is_id(text):
        raise MessageNotFound("there is no such message")
