"""The queues, consumers and schemas of a bus as an AsyncAPI 3.0 document."""

from __future__ import annotations

import json
from typing import Any

from psycopg import AsyncConnection

from postroad import __version__
from postroad.bus.client import AsyncBus

_TEXT = {"type": ["string", "null"]}
# The content type of each kind of payload, and its schema if the queue has none.
_PAYLOADS: dict[str, tuple[str, dict[str, Any]]] = {
    "hstore": ("application/json", {"type": "object", "additionalProperties": _TEXT}),
    "jsonb": ("application/json", {}),
    "text": ("text/plain", {"type": "string"}),
    "bytea": ("application/octet-stream", {"type": "string", "format": "binary"}),
}
_NAMES = ("group", "dedup_key", "unique_key", "correlation", "reply_to", "content_type")
_PRIORITY = {"priority": {"enum": ["high", "normal", "low"], "default": "normal"}}
_HEADERS = {"type": "object", "properties": _PRIORITY | dict.fromkeys(_NAMES, _TEXT),
            "patternProperties": {"^ce_[a-z0-9]+$": {"type": "string"}}}  # fmt: skip


async def asyncapi(connection: AsyncConnection[Any]) -> dict[str, Any]:
    """Return the document: channels are queues, operations are posts and consumers. Read-only."""
    bus, server = AsyncBus(connection), connection.info
    host = "localhost" if server.host.startswith("/") else server.host
    place = {"host": f"{host}:{server.port}", "pathname": f"/{server.dbname}"}
    schemas, channels, operations = {"Headers": _HEADERS}, {}, {}  # queues are in lower case
    for one in await bus.queues():
        name, (media_type, schema) = one.queue, _PAYLOADS[one.payload]
        base = f"#/components/schemas/{name}"
        schemas[name] = schema if one.schema is None else _moved(one.schema, base)
        message = {"name": name, "contentType": media_type, "payload": {"$ref": base},
                   "headers": {"$ref": "#/components/schemas/Headers"},
                   "correlationId": {"location": "$message.header#/correlation"}}  # fmt: skip
        text = f"Payload {one.payload}, business key `{one.track or 'none'}`."
        channels[name] = {"address": name, "description": text, "messages": {"data": message}}
        operations[f"post_{name}"] = ("send", name, "Post to the queue.")
    for each in await bus.consumers():
        text = f"Consumer `{each.consumer}`, selector `{each.selector or 'none'}`."
        operations[f"consume_{each.queue}_by_{each.consumer}"] = ("receive", each.queue, text)
    made = {name: {"action": action, "channel": {"$ref": f"#/channels/{queue}"},
                   "messages": [{"$ref": f"#/channels/{queue}/messages/data"}],
                   "description": text}
            for name, (action, queue, text) in operations.items()}  # fmt: skip
    return {"asyncapi": "3.0.0", "info": {"title": f"Bus {server.dbname}", "version": __version__},
            "servers": {"bus": {**place, "protocol": "postgresql"}}, "channels": channels,
            "operations": made, "components": {"schemas": schemas}}  # fmt: skip


def _moved(schema: Any, base: str) -> dict[str, Any]:
    """Return a schema whose references start at its place in the document."""

    def move(part: dict[str, Any]) -> dict[str, Any]:
        if not str(part.get("$ref")).startswith("#"):
            return part
        # AsyncAPI ignores the keywords beside a reference, JSON Schema does not.
        reference = {"$ref": base + part.pop("$ref")[1:]}
        return {**part, "allOf": [*part.get("allOf", ()), reference]}

    whole = {"allOf": [schema]} if isinstance(schema, bool) else schema
    found = json.loads(json.dumps(whole), object_hook=move)
    return {key: value for key, value in found.items() if key not in ("$id", "$schema")}
