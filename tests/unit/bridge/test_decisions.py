"""What a bridge decides without a database: where a key belongs, when a lag is an alert."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pamqp.commands import Basic

from postroad.bridge.addresses import Addresses
from postroad.bridge.calls import Batch
from postroad.bridge.errors import AddressUnknown, SecretInAddress
from postroad.bridge.rabbit_mapping import depart, routing_key
from postroad.bridge.shards import HashRing
from postroad.bridge.supervisor import LagWatch

KEYS = [f"key {number}" for number in range(4_000)]


def test_a_new_shard_takes_its_share_and_moves_nothing_else() -> None:
    before = HashRing({"a": 1, "b": 1, "c": 1})
    after = HashRing({"a": 1, "b": 1, "c": 1, "d": 1})
    moved = [key for key in KEYS if before.find(key) != after.find(key)]
    assert all(after.find(key) == "d" for key in moved)
    assert len(KEYS) / 8 < len(moved) < len(KEYS) / 2.5


def test_a_weight_is_a_share() -> None:
    ring = HashRing({"a": 3, "b": 1})
    share = sum(ring.find(key) == "a" for key in KEYS) / len(KEYS)
    assert 0.6 < share < 0.9


def test_a_lag_is_an_alert_when_it_is_old_and_grows_and_clear_when_it_is_young() -> None:
    watch = LagWatch(timedelta(seconds=60), window_seconds=30)
    assert watch.check(0, 1000, timedelta(seconds=90)) is None  # nobody knows yet whether it grows
    assert watch.check(5, 900, timedelta(seconds=95)) is None  # it shrinks
    assert watch.check(10, 2000, timedelta(seconds=99)) is True
    assert watch.check(15, 3000, timedelta(seconds=99)) is None  # told already
    assert watch.check(20, 100, timedelta(seconds=40)) is None  # not yet well
    assert watch.check(25, 50, timedelta(seconds=20)) is False
    assert watch.check(30, 60, timedelta(seconds=50)) is None  # young


def test_without_an_age_the_time_since_there_was_no_lag_counts() -> None:
    watch = LagWatch(timedelta(seconds=60))
    assert watch.check(0, 0, None) is None
    assert watch.check(10, 5, None) is None
    assert watch.check(80, 9, None) is True
    assert watch.check(90, 0, None) is False


def test_names_and_addresses_are_told_apart() -> None:
    addresses = Addresses("dbname=home", {"a": "dbname=a"}, {"rabbit": "amqp://u:p@host/"})
    assert addresses.database("home") == "dbname=home"
    assert addresses.database("a") == "dbname=a"
    assert addresses.database("dbname=b") == "dbname=b"
    assert addresses.broker("rabbit") == "amqp://u:p@host/"
    assert addresses.kind("a", "home") == "database"
    assert addresses.kind("a", "rabbit") == "rabbitmq_out"
    assert addresses.kind("amqps://host/", "a") == "rabbitmq_in"
    with pytest.raises(AddressUnknown):
        addresses.kind("rabbit", "amqp://host/")
    with pytest.raises(AddressUnknown, match="called 'b'"):
        addresses.database("b")


def test_an_address_with_a_password_is_not_stored() -> None:
    addresses = Addresses("dbname=home", {"a": "postgresql://u:p@host/a"})
    addresses.refuse_secret("a")
    addresses.refuse_secret("postgresql://u@host/a")
    with pytest.raises(SecretInAddress):
        addresses.refuse_secret("postgresql://u:p@host/a")
    with pytest.raises(SecretInAddress):
        addresses.refuse_secret("amqp://u:p@host/")
    with pytest.raises(SecretInAddress):
        addresses.refuse_secret("amqp://guest:guest@one/;amqp://u:p@two/")


def test_a_routing_key_is_filled_from_headers_and_properties() -> None:
    key = routing_key("{queue}.{group}.{region}.{none}", "orders", {"group": "g"}, {"region": "eu"})
    assert key == "orders.g.eu."


def test_the_driver_reads_the_headers_that_were_encoded_without_it() -> None:
    headers = '"a"=>"1", "none"=>NULL, "naïve ключ"=>"é✓", "empty"=>""'
    batch = Batch(1, 1, 0, ["q.1@x"], [1], ["data"], [headers], ['"p"=>"v"'], [None], [None])
    sent = depart(batch, 0, "text", datetime(2030, 1, 1, tzinfo=UTC)).properties.marshal()
    read = Basic.Properties()
    read.unmarshal(int.from_bytes(sent[:2]), sent[2:])
    assert read.headers == {
        "a": "1", "none": None, "naïve ключ": "é✓", "empty": "", "property.p": "v",
    }  # fmt: skip
    assert (read.message_id, read.app_id, read.content_type) == ("q.1@x", "postroad", "text/plain")
    assert read.delivery_mode == 2
