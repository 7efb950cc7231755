"""What senders and administrators are told: log entries, the status of a message, HTTPS."""

from __future__ import annotations

import datetime
import ipaddress
import logging
import shutil
import ssl
from pathlib import Path

import httpx
import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from postroad.exchange import operations, status
from postroad.exchange.client import Exchange
from postroad.exchange.server import ExchangeServer
from postroad.postgres import run_blocking
from postroad.settings import HttpSettings
from tests.fixtures.exchange import LocalExchange, new_root


@pytest.mark.parametrize(
    ("call", "event"), [("abort", "process_aborted"), ("fail", "process_failed")]
)
async def test_what_ends_without_a_commit_is_logged(
    exchange: LocalExchange, caplog: pytest.LogCaptureFixture, call: str, event: str
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    process = await erp.begin()
    with caplog.at_level(logging.INFO, "postroad.exchange"):
        await erp.end(process["id"], call, error="no such customer")
    (entry,) = [one for one in caplog.records if one.message == event]
    facts = vars(entry)
    assert facts["process_id"] == process["id"]
    assert (facts["client"], facts["reason"]) == ("erp", "no such customer")


async def test_a_commit_is_answered_when_it_is_recorded_though_files_cannot_be_moved(
    exchange: LocalExchange,
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    process = (await erp.begin())["id"]
    await erp.prepare(process)
    log = exchange.root / "sales/Log"
    log.rmdir()
    log.write_text("a file where a folder belongs")
    for _ in range(2):
        assert await erp.end(process, "commit") == (200, {"status": "OK"})
    assert exchange.state(process) == "FAILED"
    assert exchange.alerts() == [f"exchange/failed/{process}"]
    log.unlink()
    log.mkdir()
    await exchange.until_state(process, "DONE")
    assert exchange.files() == {"Log": ["1_m1_from_phone_to_any.json"]}


async def test_a_sender_asks_what_became_of_its_message(exchange: LocalExchange) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")

    async def asked() -> tuple[str, str | None]:
        status, answer = await phone.call("GET", "/messages/m1/status")
        assert (status, answer["id"], answer["database"]) == (200, "m1", "sales")
        return answer["state"], answer["error"]

    assert await asked() == ("queued", None)
    process = await erp.begin()
    assert await asked() == ("leased", None)
    name = process["files"][0]["name"]
    results = {name: {"status": "INCORRECT", "error": "no such customer"}}
    await erp.prepare(process["id"], results=results)
    await erp.end(process["id"], "commit")
    assert await asked() == ("parked", "no such customer")
    for stranger, id_ in ((erp, "m1"), (phone, "unknown"), (phone, "M1")):
        assert (await stranger.call("GET", f"/messages/{id_}/status"))[0] == 404
    events = exchange.rows("select (c).data from mbus.consumen_exchange_events_by_default(100) c")
    notices = [one for one in events if one["data"].get("message") == "m1"]
    assert [(one["data"]["sender"], one["data"]["error"]) for one in notices] == [
        ("phone", "no such customer")
    ]


async def test_the_history_names_who_settled_a_process_and_shows_its_replies(
    exchange: LocalExchange,
) -> None:
    phone, erp = exchange.caller("phone"), exchange.caller("erp")
    await phone.send("m1")
    process = (await erp.begin())["id"]
    await erp.prepare(process, [{"name": "r1", "recipient": "phone", "body": 1}])
    await exchange.restart()
    with psycopg.connect(exchange.dsn) as connection:
        run_blocking(exchange.dsn, operations.resolve, process, "COMMITTED", by="ann (console)")
        connection.commit()
        shown = run_blocking(exchange.dsn, status.process, process)
    assert shown is not None
    assert shown["history"][-1]["actor"] == "ann (console)"
    assert shown["history"][-1]["note"] == "settled by an administrator"
    assert [(one["name"], one["recipient"], one["state"]) for one in shown["replies"]] == [
        ("1_r1_from_erp_to_phone.json", "phone", "waiting")
    ]


def _certificate(folder: Path) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "exchange")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False
        )
        .sign(key, hashes.SHA256())
    )
    paths = folder / "tls.crt", folder / "tls.key"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


async def test_the_exchange_serves_https(database: str, tmp_path: Path) -> None:
    certificate, key = _certificate(tmp_path)
    root = new_root()
    http = HttpSettings(tls_cert=certificate, tls_key=key)
    async with ExchangeServer(database, root, port=0, http=http) as server:
        assert server.url.startswith("https://127.0.0.1:")
        context = ssl.create_default_context(cafile=str(certificate))
        async with httpx.AsyncClient(verify=context) as client:
            answer = await client.get(f"{server.url}/exchange/v1/health")
        assert answer.json()["status"] == "OK"
    assert Exchange(server.url, "x", context=context).url.startswith("https://")
    shutil.rmtree(root)


async def test_the_description_of_the_interface_is_served_without_a_token(
    exchange: LocalExchange,
) -> None:
    base = f"{exchange.server.url}/exchange/v1"
    async with httpx.AsyncClient(timeout=30) as http:
        page = await http.get(f"{base}/docs")
        script = await http.get(f"{base}/docs/start.js")
        document = (await http.get(f"{base}/openapi.json")).json()
    assert (page.status_code, script.status_code) == (200, 200)
    assert f"{base}/openapi.json".endswith(script.text.split('"url": "')[1].split('"')[0])
    body = document["paths"]["/exchange/v1/messages"]["post"]["requestBody"]
    assert body["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Message"}
