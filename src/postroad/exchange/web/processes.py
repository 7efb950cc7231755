"""Processes: API_1 to API_6, renew and resolve."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse

from postroad.exchange.content import Content, content_of
from postroad.exchange.desk import Desk
from postroad.exchange.errors import ContentInvalid, FileNotInProcess, NotAllowed, ProcessNotFound
from postroad.exchange.files import temporary_name
from postroad.exchange.names import Id
from postroad.exchange.placement import Move
from postroad.exchange.processes import Processes
from postroad.exchange.protocol import CANCELLED, Reply, Uploaded, Wish
from postroad.exchange.reading import stream
from postroad.exchange.web.answers import Prepared, Renewed, Started, Stored
from postroad.exchange.web.identity import Identity
from postroad.exchange.web.models import Choose, Ended, Prepare, Resolve, Start
from postroad.exchange.web.values import FILE_CONTENT, answer, body_of, described, parsed
from postroad.web import BodyTooLarge, problem_responses

__all__ = ["is_process_id", "process_routes"]

_PROCESS_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+")
WRITE_BYTES = 1 << 20


def _answers(model: Any, *problems: int) -> dict[int | str, dict[str, Any]]:
    return {200: {"model": model}, **problem_responses(*problems)}


def is_process_id(text: str) -> bool:
    """Tell whether a text may be the id of a process; what may not is an unknown one."""
    return _PROCESS_ID.fullmatch(text) is not None


class ProcessRoutes(NamedTuple):
    """The routes, and the handlers of the calls that every process makes."""

    routes: APIRouter
    start: Callable[[Request], Awaitable[Response]]
    prepare: Callable[[Request, str], Awaitable[Response]]
    commit: Callable[[Request, str], Awaitable[Response]]


def process_routes(identity: Identity, processes: Processes, desk: Desk) -> ProcessRoutes:
    """Return the routes of processes."""
    routes = APIRouter(prefix="/processes", tags=["processes"])

    @routes.post(
        "",
        response_model=None,
        openapi_extra=described(Start),
        responses={
            **_answers(Started),
            **problem_responses(401, 403, 404, 409, 413, 415, 422, 503, 507),
        },
    )
    async def start(request: Request) -> Response:
        """API_1: begin a process, or learn why not."""
        caller = await identity.caller(request)
        async with body_of(request) as body:
            given = parsed(Start, body)
        caller.require("take", given.database)
        settings = desk.settings
        wish = Wish(
            client=caller.id,
            database=given.database,
            recipient=caller.recipient(given.recipient),
            attempt=given.attempt,
            max_files=min(given.max_files or settings.max_files, settings.max_files),
            max_bytes=min(given.max_bytes or settings.max_bytes, settings.max_bytes),
            senders=given.senders,
            resolved=dict(given.resolved or {}),
            marker_seq=given.marker_seq,
        )
        return answer(await processes.start(wish))

    @routes.get(
        "/{id}/files/{name}",
        response_model=None,
        responses={**FILE_CONTENT, **problem_responses(401, 403, 404, 503)},
    )
    async def get_file(request: Request, id: str, name: str) -> Response:
        """Return the bytes of a large file of a process."""
        caller = await identity.caller(request)
        found = await processes.shown(id) if is_process_id(id) else None
        if found is None:
            raise ProcessNotFound("there is no such process")
        if found["owner"] != caller.id and not caller.is_admin:
            raise NotAllowed("the process is another client's")
        for fact in found["files"]:
            if fact["name"] == name:
                move = Move.of(fact)
                return StreamingResponse(
                    stream(desk, move),
                    media_type=move.media_type or "application/json",
                    headers={"Content-Length": str(move.size), "X-Content-SHA256": move.sha256},
                )
        raise ProcessNotFound("the process has no such file")

    @routes.put(
        "/{id}/files",
        response_model=None,
        openapi_extra=described(Choose),
        responses=_answers(Prepared, 401, 403, 409, 413, 415, 422, 503),
    )
    async def choose(request: Request, id: str) -> Response:
        """API_2: name the files that will be processed; the others come again later."""
        caller = await identity.caller(request)
        async with body_of(request) as body:
            given = parsed(Choose, body)
        if not is_process_id(id):
            return answer(CANCELLED)
        return answer(await processes.choose(caller.id, id, given.files, given.reason, given.delay))

    @routes.put(
        "/{id}/replies/{name}",
        response_model=None,
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {
                    "application/octet-stream": {"schema": {"type": "string", "format": "binary"}}
                },
            }
        },
        responses=_answers(Stored, 401, 403, 409, 413, 415, 422, 503, 507),
    )
    async def upload(
        request: Request,
        id: str,
        name: Id,
        recipient: Annotated[Id | None, Query()] = None,
    ) -> Response:
        """API_3, large replies: raw bytes, one by one, repeatable; then prepare names them."""
        caller = await identity.caller(request)
        found = await processes.find(id) if is_process_id(id) else None
        if found is None:
            return answer(CANCELLED)
        database, owner = found
        if owner != caller.id:
            # Before the body is received, and again in the journal.
            raise NotAllowed("the process is another client's")
        uploaded = await _receive(request, desk, database)
        verdict = await processes.upload(caller.id, id, name, recipient, uploaded)
        if verdict["status"] == "OK":
            verdict |= {"name": name, "size": uploaded.size, "sha256": uploaded.sha256}
        return answer(verdict)

    @routes.post(
        "/{id}/prepare",
        response_model=None,
        openapi_extra=described(Prepare),
        responses=_answers(Prepared, 401, 403, 409, 413, 415, 422, 503, 507),
    )
    async def prepare(request: Request, id: str) -> Response:
        """API_3: hand in replies and results; OK means that the ERP may commit."""
        caller = await identity.caller(request)
        async with body_of(request) as body:
            given = parsed(Prepare, body)
            del body
            replies = [_reply(each) for each in given.replies]
        if not is_process_id(id):
            return answer(CANCELLED)
        results = {
            name: result.model_dump(exclude_none=True) for name, result in given.results.items()
        }
        return answer(await processes.prepare(caller.id, id, replies, results))

    async def ended(request: Request, id: str, call: Any) -> Response:
        caller = await identity.caller(request)
        async with body_of(request) as body:
            error = parsed(Ended, body).error if body.strip() else None
        _refuse_no_process(id)
        return answer(await processes.end(call, caller.id, id, error=error))

    @routes.post(
        "/{id}/commit",
        response_model=None,
        responses=_answers(Prepared, 401, 403, 404, 409, 503),
    )
    async def commit(request: Request, id: str) -> Response:
        """API_4: the ERP has committed."""
        caller = await identity.caller(request)
        _refuse_no_process(id)
        return answer(await processes.end("commit", caller.id, id))

    @routes.post(
        "/{id}/abort",
        response_model=None,
        openapi_extra=described(Ended),
        responses=_answers(Prepared, 401, 403, 404, 409, 413, 415, 422, 503),
    )
    async def abort(request: Request, id: str) -> Response:
        """API_5: the ERP could not commit."""
        return await ended(request, id, "abort")

    @routes.post(
        "/{id}/fail",
        response_model=None,
        openapi_extra=described(Ended),
        responses=_answers(Prepared, 401, 403, 404, 409, 413, 415, 422, 503),
    )
    async def fail(request: Request, id: str) -> Response:
        """API_6: processing failed."""
        return await ended(request, id, "fail")

    @routes.post(
        "/{id}/renew",
        response_model=None,
        responses=_answers(Renewed, 401, 403, 404, 503),
    )
    async def renew(request: Request, id: str) -> Response:
        """Ask for more time."""
        caller = await identity.caller(request)
        _refuse_no_process(id)
        return answer(await processes.renew(caller.id, id))

    @routes.post(
        "/{id}/resolve",
        response_model=None,
        openapi_extra=described(Resolve),
        responses=_answers(Prepared, 401, 403, 404, 409, 413, 415, 422, 503),
    )
    async def resolve(request: Request, id: str) -> Response:
        """Report the outcome of a process: its owner at any time, another instance in doubt."""
        caller = await identity.caller(request)
        async with body_of(request) as body:
            given = parsed(Resolve, body)
        _refuse_no_process(id)
        found = await processes.find(id)
        if found is None:
            raise ProcessNotFound("there is no such process")
        caller.require("take", found[0])
        return answer(await processes.end("resolve", caller.id, id, outcome=given.outcome))

    return ProcessRoutes(routes, start, prepare, commit)


def _refuse_no_process(text: str) -> None:
    if not is_process_id(text):
        raise ProcessNotFound("there is no such process")


def _reply(given: Any) -> Reply:
    content: Content | None = None
    if given.content_base64 is not None or "body" in given.model_fields_set:
        content = content_of(given)
        if given.sha256 is not None and given.sha256 != content.sha256:
            raise ContentInvalid(f"reply {given.name} has another sha256 than it says")
    return Reply(
        given.name,
        given.recipient,
        given.reply_to,
        content,
        content.sha256 if content else given.sha256,
    )


async def _receive(request: Request, desk: Desk, database: str) -> Uploaded:
    """Write a raw body to a temporary file in Prepared, chunk by chunk."""
    temporary = temporary_name()
    digest = hashlib.sha256()
    size = 0
    writer = desk.storage.writer(database, "Prepared", temporary)
    descriptor = await desk.in_thread(writer.__enter__)
    try:
        held = bytearray()
        async for chunk in request.stream():
            size += len(chunk)
            _refuse_too_large(size, desk.settings.upload_limit)
            digest.update(chunk)
            held += chunk
            if len(held) >= WRITE_BYTES:
                await desk.in_thread(_write, descriptor, bytes(held))
                held.clear()
        await desk.in_thread(_write, descriptor, bytes(held))
    except BaseException as failure:
        await desk.in_thread(_leave, writer, failure)
        if isinstance(failure, ClientDisconnect):
            raise FileNotInProcess("the upload was cut off; send it again") from failure
        raise
    await desk.in_thread(writer.__exit__, None, None, None)
    named = request.headers.get("content-type", "").partition(";")[0].strip()
    media_type = named if _MEDIA_TYPE.fullmatch(named) else "application/octet-stream"
    return Uploaded(database, temporary, size, digest.hexdigest(), media_type)


def _refuse_too_large(size: int, limit: int) -> None:
    if size > limit:
        raise BodyTooLarge(f"a reply may have {limit} bytes")


def _write(descriptor: int, content: bytes) -> None:
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def _leave(writer: Any, failure: BaseException) -> None:
    """Let the writer remove its file; the failure goes on in the task it belongs to."""
    with contextlib.suppress(BaseException):
        writer.__exit__(type(failure), failure, failure.__traceback__)
