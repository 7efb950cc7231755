from __future__ import annotations

import pytest
from psycopg.conninfo import conninfo_to_dict

from postroad.broker.address import database_of, masked
from postroad.broker.errors import UrlInvalid


def test_a_url_names_a_database_with_all_options_of_libpq() -> None:
    dsn = database_of("mbus://me:s%40cret@db.example:5433/tasks?sslmode=require&connect_timeout=3")
    assert conninfo_to_dict(dsn) == {
        "user": "me",
        "password": "s@cret",
        "host": "db.example",
        "port": "5433",
        "dbname": "tasks",
        "sslmode": "require",
        "connect_timeout": "3",
    }


@pytest.mark.parametrize("url", ["mbus+postgresql://me@host/tasks", "postgresql://me@host/tasks"])
def test_the_url_of_libpq_may_follow_a_plus(url: str) -> None:
    assert conninfo_to_dict(database_of(url))["dbname"] == "tasks"


@pytest.mark.parametrize("url", ["mbus://host/tasks?no_such_option=1", "redis://host/0"])
def test_what_cannot_be_read_is_refused_without_telling_the_password(url: str) -> None:
    secret = url.replace("host", "me:hush@host")
    with pytest.raises(UrlInvalid) as refused:
        database_of(secret)
    assert "hush" not in str(refused.value)
    assert refused.value.hint


def test_the_password_is_masked() -> None:
    assert masked("mbus://me:hush@host:1/x?y=1") == "mbus://me:**@host:1/x?y=1"
    assert masked("mbus://me@host/x") == "mbus://me@host/x"
    assert masked("mbus:///") == "mbus:///"


def test_no_name_means_the_database_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POSTROAD_DATABASE_URL", "postgresql://me@host/of_the_settings")
    assert conninfo_to_dict(database_of("mbus:///"))["dbname"] == "of_the_settings"
