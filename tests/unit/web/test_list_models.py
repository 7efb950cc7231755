"""Models of lists in OpenAPI: null only where rows may have it."""

from __future__ import annotations

import pytest

from postroad.exchange.resources import CLIENTS, DATABASES, PROCESSES
from postroad.intake.resources import FILES, SERVERS, TRANSFERS
from postroad.operate import Resource
from postroad.operate.http import model_of

NULLABLE = {
    CLIENTS: "databases",
    DATABASES: "policy oldest_at process process_state committed_seq restored_at",
    PROCESSES: "outcome ready_at ended_at expires_at error trace",
    SERVERS: "problem retry_at last_scan_at last_scan host_key seen_host_key scan_interval"
    " done_suffix move_to",
    FILES: "file_hash error_message worker lease_until store object_key cleanup completed_at"
    " notice trace",
    TRANSFERS: "",
}


@pytest.mark.parametrize("resource", NULLABLE, ids=lambda one: one.name)
def test_null_is_allowed_only_where_rows_may_have_it(resource: Resource) -> None:
    properties = model_of(resource).model_json_schema()["properties"]
    nullable = {
        name
        for name, one in properties.items()
        if "type" not in one and ("anyOf" not in one or {"type": "null"} in one["anyOf"])
    }
    assert nullable == set(NULLABLE[resource].split())
