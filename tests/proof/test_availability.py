"""A claim that the page does not make any more, or that does not hold, is a violation."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.availability import Reader
from proof.cluster import Cluster
from proof.cluster.configuration import Plan
from proof.cluster.network import Network


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    return Reader(Cluster(Plan(tmp_path, Network(7, False), "secret"), {}, []), tmp_path)


def test_the_settings_of_the_page_lead_to_the_nodes(reader: Reader) -> None:
    assert "host=127.77.7.11,127.77.7.12,127.77.7.13" in reader.dsn
    assert "target_session_attrs=read-write" in reader.dsn
    assert "synchronous_mode" in reader.block("yaml")


def test_a_sentence_that_is_not_on_the_page_fails(reader: Reader) -> None:
    with reader.claim("Patroni makes coffee."):
        pass
    [violation] = reader.violations
    assert "does not say this" in violation


def test_a_claim_that_does_not_hold_is_named(reader: Reader) -> None:
    with reader.claim("Nothing has to be restarted."):
        raise TimeoutError("no promotion")
    assert "no promotion" in reader.violations[0]
    with reader.claim("Nothing has to be restarted.") as seen:
        seen.append("it went on")
    assert reader.rows[-1][1] == "it went on"
    assert len(reader.violations) == 1
