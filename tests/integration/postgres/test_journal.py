"""Calls of a journal whose database is gone."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from postroad.postgres.journal import Journal
from postroad.testing import wait_until_async


async def test_a_call_is_not_repeated_when_the_process_is_to_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "postroad.postgres.journal")
    patience = timedelta(hours=1)
    journal = Journal(f"host={tmp_path} dbname=gone", "mbus", patience=patience)
    call = asyncio.create_task(journal.call("now"))

    async def is_repeated() -> bool:
        return "journal_call_repeated" in caplog.text

    await wait_until_async(is_repeated, what="the first repetition")
    journal.stop_repeating()
    with pytest.raises(psycopg.OperationalError):
        await call
