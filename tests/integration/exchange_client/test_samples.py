"""The sample partners: orders go out, rows are written, confirmations come back."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

from postroad.exchange.sample import SampleErp, SampleMobileClient
from tests.fixtures.exchange_server import ExchangeProcess, unique

QUICK = timedelta(milliseconds=50)


async def test_the_sample_partners_do_business(served: ExchangeProcess, tmp_path: Path) -> None:
    database, file = unique("sample"), tmp_path / "erp" / "sample.sqlite"
    erp = SampleErp(
        database,
        url=served.url,
        token=served.token(unique("erp")),
        file=file,
        interval=QUICK,
    )
    mobile = SampleMobileClient(
        database,
        url=served.url,
        token=served.token(unique("mobile")),
        interval=QUICK,
    )
    mobile.signals.listen("confirmed")
    async with erp, mobile:
        for _ in range(5):
            assert (await mobile.signals.wait("confirmed"))["status"] == "taken"
    assert mobile.sent >= mobile.confirmed >= 5
    with closing(sqlite3.connect(file)) as connection:
        (count,) = connection.execute("select count(*) from sample_order").fetchone()
    assert count == erp.orders >= mobile.confirmed


async def test_an_order_that_makes_no_sense_is_put_aside(
    served: ExchangeProcess, tmp_path: Path
) -> None:
    database, token = unique("sample"), served.token(unique("erp"))
    served.client(unique("mobile")).send(database, "no order", id="m1")
    erp = SampleErp(database, url=served.url, token=token, file=tmp_path / "e", interval=QUICK)
    erp.signals.listen("worked")
    async with erp:
        assert await erp.signals.wait("worked") == 1
    assert served.states(database) == {"parked": 1}
