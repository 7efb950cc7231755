"""Problems: what counts as urgent, and the page that an alert leads to."""

from __future__ import annotations

import pytest

from postroad.console.incidents import Incident, alert_address


@pytest.mark.parametrize(
    ("key", "component", "address"),
    [
        ("exchange/in_doubt/p-1", "exchange", "/console/exchange/processes/p-1"),
        ("exchange/parked/17", "exchange", "/console/exchange/messages/17"),
        ("exchange/restored/sales", "exchange", "/console/exchange?database=sales"),
        ("intake.file.5", "intake", "/console/intake/files/5"),
        ("intake.server.2", "intake", "/console/intake/servers/2"),
        ("coordination.parked.lists.9", "coordination", "/console/coordination/events/9"),
        ("coordination.reader.lists", "coordination", "/console/coordination"),
        ("bridge/lag/over", "bridge", "/console/bridges"),
        ("disk/host/data", "alerts", "/console/alerts"),
    ],
)
def test_an_alert_leads_to_its_object(key: str, component: str, address: str) -> None:
    assert alert_address(key, component) == address


def test_a_handled_error_is_not_urgent() -> None:
    assert Incident("a", "error", "a", "/", "bus").is_urgent
    assert not Incident("a", "error", "a", "/", "bus", owner="maria").is_urgent
    assert not Incident("a", "warning", "a", "/", "bus").is_urgent
