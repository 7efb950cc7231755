"""The AsyncAPI document of a bus: valid by the official JSON Schema, and complete."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest
from jsonschema import Draft7Validator

from benchmarks.peers.install import NotInstalled, installed_node_peer
from postroad.bus import Bus
from tests.integration.bus.test_command_line import run
from tests.programs import refuse_missing

__all__ = ["run"]

ROOT = Path(__file__).parents[3]
SPECS = "@asyncapi/specs@6.11.1"
ORDER = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$id": "https://example.com/order",
    "type": "object",
    "required": ["number"],
    "properties": {
        "number": {"type": "integer", "minimum": 1},
        # A property, no reference.
        "$ref": {"type": "string"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/line"}},
        "first": {"$ref": "#/$defs/line", "required": ["amount"]},
        "next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]},
    },
    "$defs": {"line": {"type": "object", "properties": {"amount": {"exclusiveMinimum": 0}}}},
}


@pytest.fixture
def official() -> Draft7Validator:
    """Return the validator of AsyncAPI 3.0, from the package of the AsyncAPI initiative.

    Used by one test: two test processes must not install the package at the same time.
    """
    try:
        folder = installed_node_peer(ROOT, "asyncapi", SPECS)
    except NotInstalled as missing:
        refuse_missing(str(missing))
    schemas = folder / "node_modules" / "@asyncapi" / "specs" / "schemas"
    found = json.loads((schemas / "3.0.0-without-$id.json").read_text(encoding="utf-8"))
    Draft7Validator.check_schema(found)
    return Draft7Validator(found)


@pytest.fixture
def bus(database: str) -> Bus:
    """Give queues of all payloads and schemas, and consumers with and without a selector."""
    bus = Bus(database)
    bus.create_queue("orders", payload="jsonb")
    bus.alter_queue("orders", schema=ORDER, track="number")
    bus.create_consumer("orders", "large", selector="t.properties->'SIZE' = 'L'")
    for payload in ("hstore", "jsonb", "text", "bytea"):
        bus.create_queue(f"{payload}_q", payload=payload)
    for name, schema in (("anything", "true"), ("nothing", "false"), ("short", '{"maxLength": 3}')):
        bus.create_queue(name, payload="text")
        with psycopg.connect(database) as connection:
            connection.execute("select mbus.alter_queue(%s, schema => %s)", (name, schema))
    return bus


def resolved(document: Any, reference: str) -> Any:
    for part in reference.removeprefix("#/").split("/"):
        document = document[part]
    return document


def references(part: Any) -> list[str]:
    if isinstance(part, list):
        return [found for one in part for found in references(one)]
    if not isinstance(part, dict):
        return []
    own = [part["$ref"]] if isinstance(part.get("$ref"), str) else []
    return own + [found for one in part.values() for found in references(one)]


def payload_errors(document: Any, queue: str, data: Any) -> int:
    """Count the errors of data by the schema of a queue, as a reader of the document finds it."""
    reference = {"$ref": resolved(document, f"#/channels/{queue}/messages/data/payload")["$ref"]}
    return len(list(Draft7Validator({**document, "allOf": [reference]}).iter_errors(data)))


def test_the_document_is_valid_and_has_all_queues_and_consumers(run, bus, official) -> None:
    document = run("asyncapi").json
    assert [error.message for error in official.iter_errors(document)] == []
    wrong = {**document, "operations": {"post_orders": {"action": "post"}}}
    assert not official.is_valid(wrong)
    assert document["asyncapi"] == "3.0.0"
    queues = {queue.queue: queue for queue in bus.queues()}
    assert set(document["channels"]) == set(queues)
    sent = {"post_" + name: ("send", name) for name in queues}
    received = {
        f"consume_{one.queue}_by_{one.consumer}": ("receive", one.queue) for one in bus.consumers()
    }
    found = {
        name: (one["action"], resolved(document, one["channel"]["$ref"])["address"])
        for name, one in document["operations"].items()
    }
    assert found == sent | received
    selective = document["operations"]["consume_orders_by_large"]["description"]
    assert selective == "Consumer `large`, selector `t.properties->'SIZE' = 'L'`."
    described = document["channels"]["orders"]["description"]
    assert described == "Payload jsonb, business key `number`."
    for reference in references(document):
        assert resolved(document, reference) is not None
    headers = document["components"]["schemas"]["Headers"]
    assert {"priority", "group", "dedup_key", "correlation"} <= set(headers["properties"])
    assert "^ce_[a-z0-9]+$" in headers["patternProperties"]


CASES: list[tuple[str, Any, bool]] = [
    ("orders", {"number": 1, "lines": [{"amount": 1}]}, True),
    ("orders", {"number": 1, "lines": [{"amount": 0}]}, False),
    ("orders", {"number": 1, "first": {"amount": 1}}, True),
    ("orders", {"number": 1, "first": {}}, False),
    ("orders", {"number": 1, "$ref": "x"}, True),
    ("orders", {"number": 1, "$ref": 1}, False),
    ("orders", {"number": 1, "next": {"number": 2}}, True),
    ("orders", {"number": 1, "next": {"number": 0}}, False),
    ("hstore_q", {"a": "b", "c": None}, True),
    ("hstore_q", {"a": 1}, False),
    ("jsonb_q", [1], True),
    ("text_q", 1, False),
    ("anything", "x", True),
    ("nothing", "x", False),
    ("short", "abcd", False),
]


def test_schemas_accept_what_the_queue_accepts(run, bus) -> None:
    document = run("asyncapi").json
    for queue, data, is_valid in CASES:
        assert (payload_errors(document, queue, data) == 0) is is_valid, (queue, data)


def test_the_document_is_written_to_a_file_without_secrets(run, bus, database, tmp_path) -> None:
    path = tmp_path / "asyncapi.json"
    assert run("asyncapi", "--output", str(path)).out == ""
    written = json.loads(path.read_text(encoding="utf-8"))
    assert written == run("asyncapi").json
    with psycopg.connect(database) as connection:
        info = connection.info
        place = {"host": f"localhost:{info.port}", "pathname": f"/{info.dbname}"}
    assert written["servers"] == {"bus": {**place, "protocol": "postgresql"}}
