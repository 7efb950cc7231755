"""Whatever the network does to any request or reply: the same final state as without."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from postroad.exchange.client import Exchange, ExchangeClientError, ProcessCancelled
from postroad.testing import wait_until
from tests.fixtures.exchange_server import ExchangeProcess, unique
from tests.fixtures.lossy_proxy import FAULTS, lossy_proxy
from tests.integration.exchange_client.erps import Erp, execute

# Requests of one round: send; start, upload, prepare, commit; receive, fetch, ack; start of the
# round that finds nothing.
REQUESTS_OF_A_ROUND = 9
LARGE = b"x" * 300_000


@dataclass
class Round:
    """One message through the whole of it, by clients that see the network as it is."""

    server: ExchangeProcess
    erp: Erp
    url: str
    database: str
    mobile_token: str
    erp_token: str

    def client(self, token: str) -> Exchange:
        return Exchange(self.url, token, timeout=0.6, patience=20)

    def run(self, name: str) -> None:
        mobile, instance = self.client(self.mobile_token), self.client(self.erp_token)
        mobile.send(self.database, {"order": name}, id=name)
        self.work_off(instance)
        for reply in mobile.receive():
            assert reply.content == LARGE
            mobile.ack(reply)

    def work_off(self, instance: Exchange) -> None:
        connection = self.erp.connect()
        try:
            while True:
                try:
                    with instance.process(self.database, connection) as work:
                        for file in work.files:
                            statement = "insert into orders (id, process_id) values (?, ?)"
                            execute(self.erp.engine, connection, statement, (file.id, work.id))
                            work.reply(file.sender, content=LARGE, reply_to=file)
                except ProcessCancelled:
                    continue
                if work.status == "IDLE":
                    return
        finally:
            connection.close()


@pytest.fixture
def make_round(
    hasty_exchange: ExchangeProcess, make_erp: Callable[[str], Erp]
) -> Callable[[str, str], Round]:
    erps: dict[str, Erp] = {}

    def make(engine: str, url: str) -> Round:
        if engine not in erps:
            erps[engine] = make_erp(engine)
        mobile, instance = unique("mobile"), unique("erp")
        tokens = hasty_exchange.token(mobile), hasty_exchange.token(instance)
        return Round(hasty_exchange, erps[engine], url, unique("db"), *tokens)

    return make


def check(round_: Round, names: list[str]) -> None:
    """Assert the final state: each message once in the ERP, its reply fetched, nothing open."""
    found = round_.erp.run("select id from orders")
    assert sorted(row[0] for row in found if row[0] in names) == sorted(names)
    wait_until(
        lambda: (
            round_.server.states(round_.database) == {"done": len(names), "reply done": len(names)}
        ),
        what=f"all done, not {round_.server.states(round_.database)}",
    )
    states = "select distinct state from exchange.process where database_id = %s"
    # Cancelled: begun by a call whose every answer was lost, until its time was over. DONE is
    # recorded after the answer.
    wait_until(
        lambda: (
            {row[0] for row in round_.server.rows(states, round_.database)}
            <= {"DONE", "ABORTED", "CANCELLED"}
        ),
        what="every process at its end",
    )


def test_a_round_without_faults_makes_the_requests_that_are_tried(
    hasty_exchange: ExchangeProcess, make_round: Callable[[str, str], Round]
) -> None:
    with lossy_proxy(hasty_exchange.port, lambda *_: "pass") as proxy:
        name = unique("m")
        round_ = make_round("sqlite", proxy.url)
        round_.run(name)
        check(round_, [name])
    # Two of them start a process. On a slow machine a request is repeated after its timeout, and
    # the lease of the process is extended.
    lines = {line for line, _ in proxy.requests if "/renew " not in line}
    assert len(lines) == REQUESTS_OF_A_ROUND - 1
    calls = {line.rsplit("/", 1)[0].split("?")[0].split(" ")[0] for line, _ in proxy.requests}
    assert calls == {"POST", "PUT", "GET", "DELETE"}


@pytest.mark.parametrize("fault", FAULTS)
def test_any_request_may_meet_a_fault(
    hasty_exchange: ExchangeProcess, make_round: Callable[[str, str], Round], fault: str
) -> None:
    for place in range(REQUESTS_OF_A_ROUND):
        choose = _at(place, fault)
        with lossy_proxy(hasty_exchange.port, choose) as proxy:
            name = unique("m")
            round_ = make_round("sqlite", proxy.url)
            round_.run(name)
        # Checked after the proxy has delivered what it held back.
        check(round_, [name])
        assert [one for _, one in proxy.requests].count(fault) == 1


def _at(place: int, fault: str) -> Callable[[int, str], str]:
    return lambda number, _: fault if number == place else "pass"


@pytest.mark.parametrize("engine", ["postgres", "sqlite", "firebird"])
def test_a_network_that_keeps_failing_only_costs_time(
    hasty_exchange: ExchangeProcess, make_round: Callable[[str, str], Round], engine: str
) -> None:
    chance = random.Random()
    seed = chance.randrange(1_000_000)
    chance.seed(seed)

    def choose(_: int, line: str) -> str:
        quick = [fault for fault in FAULTS if fault not in ("silent_reply", "delay")]
        return chance.choice(quick) if chance.random() < 0.3 else "pass"

    names = [unique("m") for _ in range(8)]
    with lossy_proxy(hasty_exchange.port, choose) as proxy:
        round_ = make_round(engine, proxy.url)
        for name in names:
            try:
                round_.run(name)
            except ExchangeClientError as failure:
                failure.add_note(f"seed {seed}")
                raise
    # What was still on its way when the last round ended is worked off without the proxy.
    direct = Round(**{**vars(round_), "url": hasty_exchange.url})
    direct.run("last")
    check(direct, [*names, "last"])
