"""Servers share the workers: many files of one do not delay the few of another."""

from __future__ import annotations

import os
from collections import deque
from datetime import timedelta

import psycopg
import pytest

from postroad.intake.discovery import discover
from postroad.intake.engine import Engine
from postroad.intake.transfer import transfer
from postroad.intake.work import dispatch
from postroad.settings.intake import IntakeSettings
from postroad.vault import Vault
from tests.fixtures.sshd import SshServer
from tests.integration.intake.partner import Partner

BATCH = 10


@pytest.fixture
def intake_settings() -> IntakeSettings:
    return IntakeSettings(lease=timedelta(seconds=60), batch_files=BATCH)


def has_all(partner: Partner, count: int) -> bool:
    """Return whether the files are in the store."""
    return list(partner.statuses.values()).count("uploaded_to_minio") == count


async def test_few_files_do_not_wait_for_thousands_of_another_server(
    engine: Engine, partner: Partner, sshd: SshServer, database: str, vault: Vault
) -> None:
    partner.change(max_connections=64)
    for number in range(3000):
        os.close(os.open(partner.folder / f"{number:04}.csv", os.O_CREAT | os.O_WRONLY, 0o644))
    with psycopg.connect(database, autocommit=True) as connection:
        small = Partner.at(sshd, connection, vault, name="small")
        for number in range(3):
            small.write(f"{number}.csv", b"1")
        # One worker and its queue, as the tasks fill it.
        queue: deque[tuple[int, list[int]]] = deque()
        for one in (partner, small):
            await discover(engine, one.server_id)
            queue.extend((one.server_id, ids) for ids in await dispatch(engine, one.server_id))
        while not has_all(small, 3):
            server_id, ids = queue.popleft()
            await transfer(engine, ids)
            queue.extend((server_id, more) for more in await dispatch(engine, server_id))
    before = list(partner.statuses.values()).count("uploaded_to_minio")
    # The four batches that were queued first, and one for each of the three files after them.
    assert before <= 8 * BATCH
    assert len(queue) <= 8
