from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pydantic
import pytest

from postroad.errors import ConfigurationError
from postroad.settings import masked_database_url, shown_duration
from postroad.settings_sources import load


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("POSTROAD_DATABASE_URL", "POSTROAD_DATA_FOLDER", "POSTROAD_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


def test_a_flag_beats_the_environment_which_beats_the_file_which_beats_the_default(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "postroad.toml"
    file.write_text('[bus]\nlease = "1s"\npoll_interval = "1s"\nmaintenance_interval = "1s"\n')
    monkeypatch.setenv("POSTROAD_BUS__LEASE", "2s")
    monkeypatch.setenv("POSTROAD_BUS__POLL_INTERVAL", "2s")
    loaded = load({"bus.lease": "3s"})
    bus = loaded.settings.bus
    assert [bus.lease, bus.poll_interval, bus.maintenance_interval] == [
        timedelta(seconds=seconds) for seconds in (3, 2, 1)
    ]
    sources = {one.name: one.source for one in loaded.effective()}
    assert sources["bus.lease"] == "flag"
    assert sources["bus.poll_interval"] == "environment"
    assert sources["bus.maintenance_interval"] == "file postroad.toml"
    assert sources["logs.level"] == "default"


@pytest.mark.parametrize("name", ["POSTROAD_BUSS__LEASE", "POSTROAD_BUS__LEASES", "POSTROAD_X"])
def test_an_unknown_variable_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1s")
    with pytest.raises(ConfigurationError, match="unknown setting"):
        load()


@pytest.mark.parametrize("text", ['leas = "1s"', '[bus]\nleas = "1s"', '[logs]\nlevel = "loud"'])
def test_a_wrong_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "postroad.toml").write_text(text)
    with pytest.raises(ConfigurationError):
        load()


def test_a_file_that_is_no_toml_or_absent_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        load(config_file=tmp_path / "absent.toml")
    (tmp_path / "broken.toml").write_text("= 1")
    with pytest.raises(ConfigurationError):
        load(config_file=tmp_path / "broken.toml")


@pytest.mark.parametrize("value", ["30", "-1s", "0s", "soon", "1 parsec"])
def test_a_duration_needs_its_unit(value: str) -> None:
    with pytest.raises(ConfigurationError, match=r"bus\.lease"):
        load({"bus.lease": value})


def test_durations_are_shown_as_they_are_read() -> None:
    for text in ("500ms", "30s", "5m", "2h", "1d"):
        assert shown_duration(load({"bus.lease": text}).settings.bus.lease) == text


@pytest.mark.parametrize(
    "url", ["postgresql://bob:hunter2@example/db", "host=example user=bob password=hunter2"]
)
def test_passwords_are_masked_wherever_settings_are_shown(url: str) -> None:
    loaded = load({"database_url": url})
    assert "hunter2" not in repr(loaded.settings)
    assert "hunter2" not in repr(loaded.effective())
    assert "hunter2" not in masked_database_url(url)
    assert loaded.settings.database_url is not None
    assert loaded.settings.database_url.get_secret_value() == url


def test_a_connection_string_that_does_not_parse_is_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as refused:
        load({"database_url": "password=secret nonsense"})
    assert "secret" not in str(refused.value)


def test_a_secret_may_be_kept_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "dsn").write_text("host=example\n")
    found = load({"database_url": f"file:{tmp_path / 'dsn'}"}).settings.database_url
    assert found is not None
    assert found.get_secret_value() == "host=example"
    with pytest.raises(ConfigurationError, match="cannot read"):
        load({"database_url": f"file:{tmp_path / 'absent'}"})


def test_settings_are_frozen() -> None:
    with pytest.raises(pydantic.ValidationError):
        load().settings.bus.lease = timedelta(seconds=1)  # type: ignore[misc]
