from __future__ import annotations

import json
from pathlib import Path

import pytest

from postroad.cli.main import main
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

    assert "there are no servers; add one" in run("servers", "list")
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
    assert "paused acme" in run("servers", "pause", "acme")
    assert "no" in run("servers", "list")
    changed = run("servers", "change", "acme", "--after-import", "delete", "--json")
    assert json.loads(changed)["after_import"] == "delete"
    assert "would be sealed anew" in run("key", "rotate", "--dry-run")
    assert "of 1 servers are sealed" in run("key", "rotate")
    assert "no file 42" in run("retry", "42", code=3)
    assert "0 of 0 files" in run("retry", "--all")
    assert "removed acme" in run("servers", "remove", "acme", "--yes")
    assert "completed" in run("watch", "--until-done")
    assert "Example" in run("watch", "--help")
