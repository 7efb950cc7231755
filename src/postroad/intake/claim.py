"""Files claimed for one step, and the outcome of the attempt at each of them.

All files of a claim share one token. A file whose lease is lost is dropped at the next check; the
journal also refuses its token.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any

import psycopg

from postroad.intake import errors
from postroad.intake.engine import Engine
from postroad.lease import Holder, Keeper
from postroad.postgres.calls import Row

logger = logging.getLogger(__name__)

# Retry interval while the temporary folder is full.
TEMPORARY_FOLDER_PAUSE = timedelta(seconds=30)


def holder_of(
    lease: timedelta, extend: Callable[[dict[int, Row]], Awaitable[Iterable[int]]]
) -> Holder[int, Row]:
    """Return a holder of leases by id; it keeps trying while PostgreSQL is down."""
    keeper: Keeper[int, Row] = Keeper(lease)
    return Holder(keeper, extend, lambda _: None, transient=(psycopg.Error, OSError))


class Claim:
    """The files of one claim and their token."""

    def __init__(self, engine: Engine) -> None:
        self.rows: list[Row] = []
        # The ids of files that reached the next step.
        self.done: list[int] = []
        self.token = 0
        self.engine = engine
        self.holder = holder_of(engine.settings.lease, self._extend)

    def check(self, file_id: int) -> None:
        """Raise LeaseLost when the file is no longer held."""
        if not self.holder.holds(file_id):
            raise errors.LeaseLost(f"the lease of file {file_id} has expired")

    async def change(self, function: str, files: int | list[int], *values: Any) -> Any:
        """Call a function of the journal for held files, which checks their token."""
        return await self.engine.journal.change(function, files, self.token, *values)

    async def give_back(self, note: str | None = None, pause: timedelta | None = None) -> None:
        """Release the files that are still held, in their state; stored parts are kept."""
        ids = sorted(self.holder.keys())
        for file_id in ids:
            self.holder.release(file_id)
        if pause is not None:
            await self.change("postpone", ids, pause)
        if ids:
            await self.change("release", ids, note)

    async def attempt(self, row: Row, work: Callable[..., Awaitable[None]], *given: Any) -> bool:
        """Do the work of one file, or record its failure; return whether it succeeded.

        The file is still held after a success. Raises errors that concern every file and do not
        count as an attempt: SourceError, StoreError, TemporaryFolderFull.
        """
        file_id = row["id"]
        try:
            await work(row, *given)
        except errors.LeaseLost:
            logger.info("lease_lost", extra={"file_id": file_id})
        except (errors.FileVanished, errors.FileChanged) as failure:
            await self.change("conclude", file_id, failure.status, failure.message)
        except (errors.UploadLost, errors.ObjectDiffers) as failure:
            # The upload is restarted; a file fails if this happens repeatedly.
            if row["upload_id"]:
                await self.engine.journal.change("forget_upload", file_id, row["upload_id"])
            await self._fail(file_id, failure.message)
        except errors.KeyRefused as failure:
            # Another attempt would fail in the same way: an operator has to act.
            problem = "; ".join(filter(None, (failure.message, failure.hint)))
            await self._fail(file_id, problem, is_final=True)
        except (errors.SourceError, errors.StoreError, errors.TemporaryFolderFull):
            raise
        except errors.RemoteFileError as failure:
            await self._fail(file_id, failure.message)
        except Exception as failure:
            logger.exception("transfer_failed", extra={"file_id": file_id})
            await self._fail(file_id, f"unexpected error: {type(failure).__name__}: {failure}")
        else:
            return True
        self.holder.release(file_id)
        return False

    async def finish(self, row: Row, work: Callable[..., Awaitable[None]], *given: Any) -> None:
        """Do the work of one file that records its result, and release the file."""
        if await self.attempt(row, work, *given):
            self.done.append(row["id"])
        self.holder.release(row["id"])

    async def _fail(self, file_id: int, problem: str, *, is_final: bool = False) -> None:
        most = self.engine.settings.max_attempts
        status = await self.change("fail", file_id, problem, most, is_final)
        if status == "failed":
            logger.error("file_failed", extra={"file_id": file_id, "reason": problem})
            title = f"File {file_id} could not be imported"
            await self.engine.alert("file", file_id, title, problem)

    async def _extend(self, files: dict[int, Row]) -> set[int]:
        lease = self.engine.settings.lease
        held: list[int] = await self.change("extend", sorted(files), lease)
        return files.keys() - held


@contextlib.asynccontextmanager
async def claim(engine: Engine, ids: list[int], step: str) -> AsyncIterator[Claim]:
    """Claim files for a step; a store or temporary folder that fails is recorded and ends it."""
    held = Claim(engine)
    since = held.holder.now()
    held.rows = await engine.journal.select("claim", ids, step, engine.owner, engine.settings.lease)
    held.token = held.rows[0]["lease_token"] if held.rows else 0
    held.holder.claim(((row["id"], row) for row in held.rows), since)
    async with held.holder:
        try:
            yield held
            if held.done:
                await engine.works("store", engine.store.name)
        except errors.TemporaryFolderFull as failure:
            await engine.temporary_folder_full(failure)
            await held.give_back(failure.message, TEMPORARY_FOLDER_PAUSE)
        except errors.StoreError as failure:
            await engine.store_failed(failure)
            await held.give_back(failure.message)
        finally:
            await held.give_back()
