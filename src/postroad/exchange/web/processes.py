"""Processes: API_1 to API_6, renew and resolve; administrators show and release them."""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import Annotated

from fastapi import Query, Request
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from postroad.exchange.errors import FileNotInProcess, NotAllowed, ProcessNotFound
from postroad.exchange.files import write_all
from postroad.exchange.journal import NOW
from postroad.exchange.mover import Mover
from postroad.exchange.moves import Move
from postroad.exchange.operations import Id, judge
from postroad.exchange.processes import CANCELLED, Call, Processes, Uploaded, is_process_id
from postroad.exchange.web.answers import Prepared, ProcessShown, Renewed, Started, Stored
from postroad.exchange.web.identity import Caller, Client
from postroad.exchange.web.models import Choose, Ended, Prepare, Release, Resolve, Start
from postroad.exchange.web.values import BODY, CONTENT, RAW_BODY, Endpoints, answer, file_answer
from postroad.web.errors import BodyTooLarge

_MEDIA_TYPE = re.compile(r"[\w.+-]+/[\w.+-]+")
WRITE_BYTES = 1 << 20


def add_processes(call: Endpoints, processes: Processes) -> None:
    """Add the calls of processes."""
    mover, journal = processes.mover, processes.mover.journal

    async def end(how: Call, caller: Caller, id: str, given: Ended | None = None) -> Response:
        error = given.error if given else None
        return answer(await processes.end(how, caller.id, known(id), error=error))

    @call("POST", "", Started, 403, 404, 409, *BODY, 507)
    async def start(caller: Client, given: Start) -> Response:
        """API_1: start a process, or return why not."""
        caller.require("take", given.database)
        recipient = caller.recipient(given.recipient)
        return answer(await processes.start(caller.id, recipient, given))

    @call("POST", "/{id}/prepare", Prepared, 403, 409, *BODY, 507)
    async def prepare(caller: Client, id: str, given: Prepare) -> Response:
        """API_3: send replies and results; after OK the ERP may commit."""
        return answer(await processes.prepare(caller.id, id, given))

    @call("POST", "/{id}/commit", Prepared, 403, 404, 409)
    async def commit(caller: Client, id: str) -> Response:
        """API_4: the ERP has committed."""
        return await end("commit", caller, id)

    @call("GET", "/{id}/files/{name}", CONTENT, 403, 404)
    async def get_file(caller: Client, id: str, name: str) -> Response:
        """Return the bytes of a large file of a process."""
        found = await processes.shown(known(id))
        if found["owner"] != caller.id and not caller.is_admin:
            raise NotAllowed("the process belongs to another client")
        for fact in found["files"]:
            if fact["name"] == name:
                return file_answer(mover, Move.of(fact))
        raise ProcessNotFound("the process has no such file")

    @call("PUT", "/{id}/files", Prepared, 403, 409, *BODY)
    async def choose(caller: Client, id: str, given: Choose) -> Response:
        """API_2: name the files that will be processed; the others are handed out again later."""
        if not is_process_id(id):
            return answer(CANCELLED)
        parameters = NOW, caller.id, id, given.files, given.reason, given.delay
        found = await journal.decide("choose_files", *parameters)
        verdict = judge(found, id)
        if moves := Move.planned(found):
            # Files that were refused too often are parked.
            await mover.follow(moves)
        return answer(verdict)

    stored = "/{id}/replies/{name}", Stored, 403, 409, *BODY, 507

    @call("PUT", *stored, openapi_extra=RAW_BODY)
    async def upload(
        request: Request,
        caller: Client,
        id: str,
        name: Id,
        recipient: Annotated[Id | None, Query()] = None,
    ) -> Response:
        """API_3, large replies: raw bytes, one by one, repeatable; then prepare names them."""
        found = await processes.find(id)
        if found is None:
            return answer(CANCELLED)
        database, owner = found
        if owner != caller.id:
            # Checked before the body is received, and again in the journal.
            raise NotAllowed("the process belongs to another client")
        uploaded = await _receive(request, mover, database, processes.settings.upload_limit)
        parameters = caller.id, id, name, recipient, *uploaded
        temporaries = [uploaded.temporary]
        verdict = await processes.store(database, id, temporaries, "upload_reply", *parameters)
        if verdict["status"] == "OK":
            verdict |= {"name": name, "size": uploaded.size, "sha256": uploaded.sha256}
        return answer(verdict)

    @call("POST", "/{id}/abort", Prepared, 403, 404, 409, *BODY)
    async def abort(caller: Client, id: str, given: Ended | None = None) -> Response:
        """API_5: the ERP could not commit."""
        return await end("abort", caller, id, given)

    @call("POST", "/{id}/fail", Prepared, 403, 404, 409, *BODY)
    async def fail(caller: Client, id: str, given: Ended | None = None) -> Response:
        """API_6: processing failed."""
        return await end("fail", caller, id, given)

    @call("POST", "/{id}/renew", Renewed, 403, 404)
    async def renew(caller: Client, id: str) -> Response:
        """Extend the lease of a process."""
        parameters = journal.epoch, NOW, caller.id, known(id)
        return answer(judge(await journal.call("renew_process", *parameters), id))

    @call("POST", "/{id}/resolve", Prepared, 403, 404, 409, *BODY)
    async def resolve(caller: Client, id: str, given: Resolve) -> Response:
        """Report the outcome: the owner at any time, another instance while it is in doubt."""
        found = await processes.find(known(id))
        if found is None:
            raise ProcessNotFound("there is no such process")
        caller.require("take", found[0])
        return answer(await processes.end("resolve", caller.id, id, outcome=given.outcome))

    administrate = replace(call, tag="administration")

    @administrate("GET", "/{id}", ProcessShown, 403, 404)
    async def show_process(caller: Client, id: str) -> Response:
        """Show a process with its files and its history."""
        caller.require_admin()
        found = await processes.shown(known(id))
        for file in found["files"]:
            del file["number"]
        del found["deadline"]
        return answer(found)

    @administrate("POST", "/{id}/release", Prepared, 403, 404, 409, *BODY)
    async def release(caller: Client, id: str, given: Release | None = None) -> Response:
        """End a process by hand; one that is ready to commit needs its outcome."""
        caller.require_admin()
        given = given or Release()
        outcome = {"outcome": given.outcome, "error": given.reason}
        return answer(await processes.end("release", caller.id, known(id), **outcome))


def known(text: str) -> str:
    """Return the id of a process. Raises ProcessNotFound for a text that cannot be one."""
    if not is_process_id(text):
        raise ProcessNotFound("there is no such process")
    return text


async def _receive(request: Request, mover: Mover, database: str, limit: int) -> Uploaded:
    """Write a raw body to a temporary file in Prepared, chunk by chunk."""
    temporary = mover.storage.temporary_name()
    digest = hashlib.sha256()
    size = 0
    writer = mover.storage.writer(database, "Prepared", temporary)
    descriptor = await mover.in_thread(writer.__enter__)
    try:
        held = bytearray()
        async for chunk in request.stream():
            size += len(chunk)
            if size > limit:
                raise BodyTooLarge(f"a reply may have {limit} bytes")  # noqa: TRY301
            digest.update(chunk)
            held += chunk
            if len(held) >= WRITE_BYTES:
                await mover.in_thread(write_all, descriptor, bytes(held))
                held.clear()
        await mover.in_thread(write_all, descriptor, bytes(held))
    except BaseException as failure:
        # The writer removes its file.
        await mover.in_thread(writer.__exit__, type(failure), failure, failure.__traceback__)
        if isinstance(failure, ClientDisconnect):
            raise FileNotInProcess("the upload was cut off; send it again") from failure
        raise
    await mover.in_thread(writer.__exit__, None, None, None)
    named = request.headers.get("content-type", "").partition(";")[0].strip()
    media_type = named if _MEDIA_TYPE.fullmatch(named) else "application/octet-stream"
    return Uploaded(size, digest.hexdigest(), media_type, temporary)
