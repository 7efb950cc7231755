"""The data of a queue with a JSON Schema matches it, whichever way it is posted."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from psycopg import Connection

from tests.sql.calls import column, maintain, one, refused, take

ORDER = {
    "type": "object",
    "required": ["number"],
    "additionalProperties": False,
    "properties": {
        "number": {"type": "integer", "minimum": 1},
        "state": {"enum": ["open", "done"]},
        "note": {"type": "string", "minLength": 2, "maxLength": 5, "pattern": "^[a-z]"},
        "lines": {
            "type": "array",
            "minItems": 1,
            "maxItems": 2,
            "uniqueItems": True,
            "items": {"$ref": "#/$defs/line"},
        },
        "address": {"oneOf": [{"type": "string"}, {"type": "object", "minProperties": 1}]},
    },
    "$defs": {"line": {"type": "object", "properties": {"amount": {"exclusiveMinimum": 0}}}},
}


@pytest.fixture
def orders(bus: Connection) -> Connection:
    """Give the queue o, jsonb with a schema."""
    bus.execute("select mbus.create_queue('o', payload => 'jsonb')")
    alter(bus, ORDER)
    return bus


def alter(bus: Connection, schema: object, queue: str = "o") -> None:
    bus.execute("select mbus.alter_queue(%s, schema => %s)", (queue, json.dumps(schema)))


@pytest.mark.both_versions
@pytest.mark.parametrize(
    ("data", "found"),
    [
        ({"number": 1, "state": "open", "note": "abc", "lines": [{"amount": 1}]}, None),
        ([], '$: type "object"'),
        ({}, "$.number: required"),
        ({"number": 0}, "$.number: minimum 1"),
        ({"number": 1.5}, '$.number: type "integer"'),
        ({"number": 1, "other": 2}, "$.other: false"),
        ({"number": 1, "state": "new"}, '$.state: enum ["open", "done"]'),
        ({"number": 1, "note": "a"}, "$.note: minLength 2"),
        ({"number": 1, "note": "abcdef"}, "$.note: maxLength 5"),
        ({"number": 1, "note": "Abc"}, '$.note: pattern "^[a-z]"'),
        ({"number": 1, "lines": []}, "$.lines: minItems 1"),
        ({"number": 1, "lines": [{}, {}]}, "$.lines: uniqueItems"),
        ({"number": 1, "lines": [{}, {"amount": 0}]}, "$.lines[1].amount: exclusiveMinimum 0"),
        ({"number": 1, "address": {}}, "$.address: oneOf, 0 of them match"),
    ],
)
def test_the_error_names_the_path_and_the_rule(
    orders: Connection, data: object, found: str | None
) -> None:
    text = json.dumps(data)
    if found is None:
        assert one(orders, "select mbus.post('o', %s::jsonb)", text)
        return
    with pytest.raises(psycopg.DatabaseError) as error:
        orders.execute("select mbus.post('o', %s::jsonb)", (text,))
    assert error.value.sqlstate == "MB011"
    assert error.value.diag.message_primary == (
        f'the data violates the schema of queue "o": {found}'
    )


@pytest.mark.both_versions
def test_data_that_is_nested_too_deeply_violates_a_recursive_schema(orders: Connection) -> None:
    alter(orders, {"properties": {"c": {"$ref": "#"}}})
    post = "select mbus.post('o', %s::jsonb)"
    assert one(orders, post, '{"c":' * 50 + "1" + "}" * 50)
    with refused(orders, "MB011"):
        orders.execute(post.encode(), ('{"c":' * 5_000 + "1" + "}" * 5_000,))


@pytest.mark.both_versions
def test_every_way_to_post_is_checked(orders: Connection) -> None:
    good, bad = "'{\"number\": 1}'", "'{\"number\": 0}'"
    orders.execute("select mbus.create_queue('source', payload => 'jsonb')")
    orders.execute("select mbus.create_trigger('source', 'o')")
    for call in (
        "mbus.post_o({}::jsonb)",
        "mbus.post('o', {}::text)",
        "mbus.postn_o(array['{{\"number\": 1}}', {}]::jsonb[])",
        "mbus.postn_o(array[{}]::jsonb[], array['dedup_key=>k']::hstore[])",
        "mbus.post_o({}::jsonb, delayed_until => '2100-01-01')",
        "mbus.post_source({}::jsonb)",
        'mbus.create_saga(\'s\', \'[{{"name": "a", "do": "o"}}]\'::jsonb, {}::jsonb)',
    ):
        with refused(orders, "MB011"):
            orders.execute(f"select {call.format(bad)}".encode())
        orders.execute("savepoint good")
        orders.execute(f"select {call.format(good)}".encode())
        orders.execute("rollback to savepoint good")
    orders.execute("select mbus.alter_queue('o', schema => '{}')")
    orders.execute("select mbus.post_o('{\"number\": 0}')")


@pytest.mark.both_versions
def test_an_edited_message_is_checked(orders: Connection) -> None:
    iid = one(orders, """select mbus.post('o', '{"number": 1}'::jsonb)""")
    orders.execute("select mbus.reject('o', 'default', %s, park => true)", (iid,))
    with refused(orders, "MB011"):
        orders.execute("""select mbus.redrive_edited(%s, '{"number": 0}')""", (iid,))
    assert one(orders, """select mbus.redrive_edited(%s, '{"number": 2}')""", iid) == 1


@pytest.mark.both_versions
@pytest.mark.parametrize(
    ("payload", "schema", "good", "bad"),
    [
        ("hstore", {"properties": {"n": {"pattern": "^[0-9]+$"}}}, "n=>1", "n=>x"),
        ("hstore", {"required": ["n"]}, "n=>null", "m=>1"),
        ("text", {"type": "string", "maxLength": 3}, "abc", "abcd"),
    ],
)
def test_queues_of_other_payloads_have_schemas(
    bus: Connection, payload: str, schema: object, good: str, bad: str
) -> None:
    bus.execute(f"select mbus.create_queue('o', payload => '{payload}')".encode())
    alter(bus, schema)
    bus.execute(
        f"select mbus.post_o(%s), mbus.postn_o(array[%s]::{payload}[])".encode(), (good,) * 2
    )
    with refused(bus, "MB011"):
        bus.execute("select mbus.post_o(%s)", (bad,))
    with refused(bus, "MB011"):
        bus.execute(f"select mbus.postn_o(array[%s]::{payload}[])".encode(), (bad,))


@pytest.mark.both_versions
@pytest.mark.parametrize(
    "schema",
    [
        {"patternProperties": {}},
        {"properties": {"a": {"dependentRequired": {}}}},
        {"items": {"anyOf": [{"unevaluatedItems": False}]}},
        {"$defs": {"a": {"$id": "x"}}},
        {"type": "date"},
        {"type": ["string", "date"]},
        {"minimum": "1"},
        {"minLength": "x"},
        {"required": "a"},
        {"pattern": "("},
        {"properties": []},
        {"properties": {"a": 1}},
        {"enum": "a"},
        {"items": [{}]},
        {"$ref": "#/$defs/none"},
        {"$ref": "https://example.com/schema"},
        {"$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"$ref": "#"},
        [],
        None,
        "x",
    ],
)
def test_a_schema_that_cannot_be_checked_is_refused(orders: Connection, schema: object) -> None:
    with refused(orders, "MB012"):
        alter(orders, schema)
    assert one(orders, "select schema from mbus.queues where queue = 'o'") == ORDER


def test_a_queue_of_bytes_has_no_schema(bus: Connection) -> None:
    bus.execute("select mbus.create_queue('o', payload => 'bytea')")
    with refused(bus, "MB012"):
        alter(bus, {"type": "string"})


def test_the_data_of_a_schedule_is_checked(orders: Connection) -> None:
    with refused(orders, "MB011"):
        orders.execute("""select mbus.schedule('s', '1 minute', 'o', '{"number": 0}'::jsonb)""")
    orders.execute("""select mbus.schedule('s', '1 minute', 'o', '{"number": 1}'::jsonb)""")
    alter(orders, False)
    orders.execute("update mbus.schedule set next_at = mbus.now()")
    maintain(orders, None)
    assert "$: false" in one(orders, "select error from mbus.schedule_run")


def test_stored_messages_are_delivered_under_a_new_schema(orders: Connection) -> None:
    orders.execute("""select mbus.post('o', '{"number": 1}'::jsonb)""")
    alter(orders, False)
    assert column(orders, "select data->>'number' from mbus.consumen_o_by_default(9)") == ["1"]
    with refused(orders, "MB011"):
        orders.execute("""select mbus.post('o', '{"number": 1}'::jsonb)""")


def test_queues_without_a_schema_have_no_trace_of_it(bus: Connection) -> None:
    bodies = column(bus, "select prosrc from pg_proc where proname in ('post_q', 'postn_q')")
    assert len(bodies) == 2
    assert not any("_conform" in body for body in bodies)
    assert take(bus) == []


names = st.sampled_from("abc")
numbers = st.integers(-3, 3) | st.sampled_from([0.5, 1.0, -1.5])
values = st.recursive(
    st.none() | st.booleans() | numbers | st.sampled_from(["", "a", "ab", "äöü", "😀"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)
types = st.sampled_from(["null", "boolean", "number", "integer", "string", "array", "object"])
rules: dict[str, st.SearchStrategy[Any]] = {
    "type": types | st.lists(types, min_size=1, max_size=3, unique=True),
    "enum": st.lists(values, min_size=1, max_size=3),
    "const": values,
    "required": st.lists(names, unique=True, max_size=2),
    "pattern": st.sampled_from(["a", "^a", "b$", "^.$", "[0-9]+"]),
    "uniqueItems": st.booleans(),
    "multipleOf": st.sampled_from([1, 2, 0.5]),
    **dict.fromkeys(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"], numbers),
    **dict.fromkeys(
        ["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"],
        st.integers(0, 3),
    ),
}


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    deeper = dict.fromkeys(["not", "items", "additionalProperties"], inner)
    deeper |= dict.fromkeys(["allOf", "anyOf", "oneOf"], several)
    deeper["properties"] = st.dictionaries(names, inner, max_size=3)
    return st.fixed_dictionaries({}, optional=rules | deeper)


schemas = st.recursive(
    st.booleans() | st.fixed_dictionaries({}, optional=rules), nested, max_leaves=6
)
# Few rules at once: a schema with all of them matches nothing.
plain = st.one_of(*(st.fixed_dictionaries({name: rule}) for name, rule in rules.items()))


@settings(
    max_examples=400,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(schema=plain | schemas | nested(plain | schemas), data=values)
def test_data_is_valid_where_the_reference_says_so(
    bus: Connection, schema: object, data: object
) -> None:
    Draft202012Validator.check_schema(schema)
    text = json.dumps(schema)
    found = one(bus, "select mbus._violation(%s, %s, %s, '$')", text, text, json.dumps(data))
    assert (found is None) == Draft202012Validator(schema).is_valid(data), found
    bus.execute("select mbus._check_schema(%s, %s, '$')", (text, text))
