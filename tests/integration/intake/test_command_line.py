from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psycopg
import pytest

from postroad.cli.main import main
from postroad.intake import Credentials, operations
from postroad.postgres import run_blocking
from postroad.vault import Vault, new_key
from tests.fixtures.sshd import SshServer


def test_commands_say_what_is_wrong_and_what_to_do(
    database: str,
    sshd: SshServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("POSTROAD_DATABASE_URL", database)
    monkeypatch.setenv("POSTROAD_DATA_FOLDER", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str, code: int = 0) -> str:
        with pytest.raises(SystemExit) as left:
            main(["intake", *arguments])
        said = capsys.readouterr()
        assert left.value.code == code, said
        return said.out + said.err

    assert "there are no servers" in run("servers", "list")
    said = run("servers", "test", "absent", code=3)
    assert "there is no server absent" in said
    assert "hint: list them" in said
    key_file = tmp_path / "key"
    key_file.write_text(sshd.key())
    row = json.loads(
        run(
            *["servers", "add", "--json", "--name", "acme", "--host", "127.0.0.1"],
            *["--port", str(sshd.port), "--user", sshd.username, "--key-file", str(key_file)],
            *["--directory", str(sshd.new_folder()), "--interval", "5m", "--include", "*.csv"],
        )
    )
    assert (row["include"], row["scan_interval"]) == (["*.csv"], 300.0)
    assert "the login works" in run("servers", "test", "acme")
    assert run("servers", "browse", "acme", "--json").strip() == "[]"
    assert sshd.host_key in run("servers", "show", "acme")
    assert "acme would be paused" in run("servers", "pause", "acme", "--dry-run")
    assert "acme is paused" in run("servers", "pause", "acme")
    assert "no" in run("servers", "list")
    changed = run("servers", "change", "acme", "--after-import", "delete", "--json")
    assert json.loads(changed)["after_import"] == "delete"
    assert "would be encrypted again" in run("key", "rotate", "--dry-run")
    assert "of 1 servers are encrypted" in run("key", "rotate")
    assert "no file 42" in run("retry", "42", code=3)
    assert "specify the files, or use --all" in run("retry", code=2)
    assert "0 files are changed" in run("retry", "--all", "--server", "acme")
    assert json.loads(run("files", "list", "--json")) == []
    assert "acme is removed" in run("servers", "remove", "acme", "--yes")
    assert "completed" in run("watch", "--until-done")
    assert "Example" in run("watch", "--help")


def test_all_files_that_match_are_changed_and_the_others_left_alone(
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("POSTROAD_DATABASE_URL", database)
    monkeypatch.setenv("POSTROAD_DATA_FOLDER", str(tmp_path))
    values = {"name": "acme", "host": "127.0.0.1", "username": "nobody"}
    credentials = Credentials(password="secret")
    made = run_blocking(database, operations.create_server, Vault([new_key()]), credentials, values)
    with psycopg.connect(database) as connection:
        for name, status in (("a", "failed"), ("b", "failed"), ("c", "completed")):
            connection.execute(
                "insert into intake.imported_files"
                " (server_id, filename, path, filesize, mtime, version, status)"
                " values (%s, %s, convert_to(%s, 'utf8'), 1, 1, 1, %s)",
                (made["id"], name, name, status),
            )

    def run(*arguments: str) -> Any:
        with pytest.raises(SystemExit) as left:
            main(["intake", *arguments, "--json"])
        assert left.value.code == 0
        return json.loads(capsys.readouterr().out)

    ids = {row["filename"]: row["id"] for row in run("files", "list", "--server", "acme")}
    tried = run("retry", "--all", "--dry-run")
    assert (tried["ids"], tried["is_dry_run"]) == ([ids["a"], ids["b"]], True)
    assert run("retry", "--all", "--server", "other")["count"] == 0
    assert run("files", "skip", "--all", "--name", "B")["ids"] == [ids["b"]]
    assert run("retry", "--all")["ids"] == [ids["a"]]
    assert run("files", "reimport", "--all", "--server", str(made["id"]))["ids"] == [ids["c"]]
    shown = run("files", "show", str(ids["b"]))
    assert (shown["status"], [one["status"] for one in shown["history"]]) == (
        "skipped",
        ["skipped"],
    )
    assert [row["filename"] for row in run("files", "list", "--status", "discovered")] == ["c", "a"]
