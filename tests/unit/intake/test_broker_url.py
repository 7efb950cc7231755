from __future__ import annotations

from kombu import Connection
from psycopg.conninfo import conninfo_to_dict

from postroad.broker.address import database_of
from postroad.intake.celery_worker import broker_url
from postroad.settings.intake import IntakeSettings


def test_the_bus_is_the_database_in_use_and_its_password_is_masked_when_shown() -> None:
    dsn = "host=/run/pg user=me password='planted p@ss/9' dbname=files port=5433 sslmode=disable"
    url = broker_url(IntakeSettings(), dsn)
    assert conninfo_to_dict(database_of(url)) == conninfo_to_dict(dsn)
    shown = Connection(url).as_uri()
    assert "planted" not in shown
    assert "me:**@" in shown


def test_a_broker_that_is_set_is_used() -> None:
    settings = IntakeSettings(broker="amqp://guest:guest@localhost//")
    assert broker_url(settings, "dbname=files") == "amqp://guest:guest@localhost//"
