"""The attributes of CloudEvents are headers."""

from __future__ import annotations

from datetime import datetime

import pytest

from postroad.bus import InvalidArgument, cloud_event


def test_required_attributes_are_added() -> None:
    one, other = (cloud_event("order.created", "/shop") for _ in range(2))
    assert one["ce_specversion"] == "1.0"
    assert (one["ce_type"], one["ce_source"]) == ("order.created", "/shop")
    assert one["ce_id"] != other["ce_id"]
    assert datetime.fromisoformat(one["ce_time"] or "").tzinfo


def test_others_are_kept_and_the_content_type_has_its_own_header() -> None:
    more = {"id": "7", "subject": "4711", "datacontenttype": "text/csv", "partner": "acme"}
    headers = cloud_event("order.created", "/shop", **more)
    assert headers["content_type"] == "text/csv"
    assert (headers["ce_id"], headers["ce_subject"], headers["ce_partner"]) == ("7", "4711", "acme")
    assert "ce_datacontenttype" not in headers


@pytest.mark.parametrize("wrong", [{"partner_id": "7"}, {"Subject": "7"}, {"subject": ""}])
def test_what_the_specification_forbids_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument):
        cloud_event("order.created", "/shop", **wrong)
    with pytest.raises(InvalidArgument):
        cloud_event("", "/shop")
