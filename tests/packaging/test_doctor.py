"""`postroad doctor` checks what the recipes rely on."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from postroad.cli import doctor
from postroad.cli.main import cli


def findings(folder: Path) -> list[dict[str, str]]:
    arguments = ["--data-folder", str(folder), "doctor", "--json"]
    found: list[dict[str, str]] = json.loads(CliRunner().invoke(cli, arguments).stdout)
    return found


def states(folder: Path) -> dict[str, str]:
    return {finding["what"]: finding["state"] for finding in findings(folder)}


def test_a_container_without_a_volume_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "CONTAINER_FILES", ())
    assert "container" not in states(tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert states(tmp_path)["container"] == "note"
    monkeypatch.setattr(Path, "is_mount", lambda _path: True)
    assert states(tmp_path)["container"] == "good"


def test_an_environment_file_that_others_can_read_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "environment"
    monkeypatch.setattr(doctor, "ENVIRONMENT_FILE", file)
    assert "systemd" not in states(tmp_path)
    file.touch()
    for mode, state in ((0o644, "bad"), (0o640, "good")):
        file.chmod(mode)
        assert states(tmp_path)["systemd"] == state


def test_log_files_that_nothing_rotates_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs, recipe = tmp_path / "log", tmp_path / "logrotate"
    monkeypatch.setattr(doctor, "LOG_FOLDER", logs)
    monkeypatch.setattr(doctor, "LOGROTATE_FILE", recipe)
    assert "logrotate" not in states(tmp_path)
    logs.mkdir()
    (logs / "web.log").touch()
    assert states(tmp_path)["logrotate"] == "note"
    recipe.touch()
    assert states(tmp_path)["logrotate"] == "good"


def test_every_node_of_a_broker_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        urls = f"amqp://guest@127.0.0.1:{port};amqps://guest@127.0.0.1:1/vhost"
        monkeypatch.setenv("POSTROAD_BRIDGE__BROKERS", json.dumps({"rabbit": urls}))
        found = [one for one in findings(tmp_path) if one["what"] == "broker rabbit"]
    assert [one["state"] for one in found] == ["good", "bad"]
    assert found[1]["found"].startswith("127.0.0.1:1: ")


def test_a_console_with_a_certificate_is_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POSTROAD_HTTP__HOST", "0.0.0.0")
    assert states(tmp_path)["console"] == "note"
    monkeypatch.setenv("POSTROAD_HTTP__TLS_CERT", str(tmp_path / "cert.pem"))
    assert "console" not in states(tmp_path)
