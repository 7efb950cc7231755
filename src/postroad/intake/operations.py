"""What an operator may do: servers, their host keys, files, and keys of the vault.

Each takes a connection and works in the caller's transaction.
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from typing import Any

import asyncssh
import psycopg
from psycopg import Connection, sql

from postroad import trace
from postroad.alerts import clear_alert
from postroad.intake import status
from postroad.intake.cleanup import move_folder_invalid
from postroad.intake.credentials import Credentials
from postroad.intake.engine import alert_key
from postroad.intake.errors import (
    CredentialsInvalid,
    CredentialsNeeded,
    MoveFolderInvalid,
    ServerExists,
    translate,
)
from postroad.vault import Vault

__all__ = [
    "CHANGEABLE",
    "change_server",
    "create_server",
    "delete_server",
    "pause_server",
    "reimport",
    "resume_server",
    "retry",
    "rotate_credentials",
    "skip",
    "trust_host_key",
]

# What a caller may say about a server; everything else is the intake's own.
CHANGEABLE = (
    "name",
    "host",
    "port",
    "username",
    "directory",
    "is_active",
    "host_key",
    "trusts_first_key",
    "scan_interval",
    "include",
    "exclude",
    "ignore",
    "is_case_sensitive",
    "max_depth",
    "follows_links",
    "looks",
    "minimum_age",
    "done_suffix",
    "after_import",
    "move_to",
    "way",
    "max_connections",
)

# To whom the credentials are sent.
_LOGIN = ("host", "port", "username", "host_key", "trusts_first_key")
# What else makes a server that could not be used worth another try.
_FOLDERS = ("directory", "after_import", "move_to")


def create_server(
    connection: Connection[Any],
    vault: Vault,
    credentials: Credentials,
    values: Mapping[str, Any],
) -> dict[str, Any]:
    """Add a server and return it; its name is its host unless given. Raises ServerExists."""
    given = _checked(values)
    _check_move(given)
    given["credentials"] = credentials.seal(vault)
    if not given.get("name"):
        given["name"] = _free_name(connection, given["host"])
    statement = sql.SQL("insert into intake.sftp_servers ({}) values ({}) returning id").format(
        sql.SQL(", ").join(map(sql.Identifier, given)),
        sql.SQL(", ").join(sql.Placeholder() * len(given)),
    )
    row = _run(connection, statement, list(given.values())).fetchone()
    assert row is not None  # noqa: S101 - an insert returns its row
    return status.server(connection, row[0])


def change_server(
    connection: Connection[Any],
    vault: Vault,
    name_or_id: str | int,
    values: Mapping[str, Any],
    credentials: Credentials | None = None,
) -> dict[str, Any]:
    """Change a server and return it; it is scanned again immediately.

    A changed host, port, user name or host key needs the credentials again: stored ones must not be
    sent to a host for which they were not entered. Raises CredentialsNeeded.
    """
    found = status.server(connection, name_or_id)
    given = _checked(values)
    changed = [name for name in _LOGIN if name in given and given[name] != found[name]]
    if changed and credentials is None:
        raise CredentialsNeeded(
            f"changing {', '.join(changed)} of {found['name']} needs its credentials again",
            hint="give the password or the private key with the change",
        )
    _check_move({**found, **given})
    if credentials is not None:
        given["credentials"] = credentials.seal(vault)
    if given:
        changes: list[sql.Composable] = [
            sql.SQL("{} = %s").format(sql.Identifier(name)) for name in given
        ]
        if given.keys() & {"credentials", *_LOGIN, *_FOLDERS}:
            changes.append(sql.SQL("status = 'new', problem = null, failures = 0, retry_at = null"))
            clear_alert(connection, alert_key("server", found["id"]))
        changes.append(sql.SQL("updated_at = intake.now(), next_scan_at = intake.now()"))
        statement = sql.SQL("update intake.sftp_servers set {} where id = %s").format(
            sql.SQL(", ").join(changes)
        )
        _run(connection, statement, [*given.values(), found["id"]])
    return status.server(connection, found["id"])


def delete_server(connection: Connection[Any], name_or_id: str | int) -> None:
    """Remove a server with the journal of its files; what is in the store stays."""
    found = status.server(connection, name_or_id)
    connection.execute("delete from intake.sftp_servers where id = %s", (found["id"],))
    clear_alert(connection, alert_key("server", found["id"]))


def pause_server(connection: Connection[Any], name_or_id: str | int) -> dict[str, Any]:
    """Neither look at a server nor begin transfers or clean up there; running ones end."""
    return _set_active(connection, name_or_id, is_active=False)


def resume_server(connection: Connection[Any], name_or_id: str | int) -> dict[str, Any]:
    """Go on with a paused server, at once."""
    return _set_active(connection, name_or_id, is_active=True)


def trust_host_key(
    connection: Connection[Any], name_or_id: str | int, host_key: str | None = None
) -> dict[str, Any]:
    """Trust a key, by default the one that the server showed, and let the server go on."""
    found = status.server(connection, name_or_id)
    if host_key is not None:
        host_key = _public_key(host_key)
    _run(connection, sql.SQL("select intake.trust_host_key(%s, %s)"), [found["id"], host_key])
    clear_alert(connection, alert_key("server", found["id"]))
    return status.server(connection, found["id"])


def retry(connection: Connection[Any], ids: Sequence[int]) -> list[int]:
    """Try files again now that failed, vanished, were superseded or skipped, or wait."""
    done = _files(connection, "retry", ids)
    for file_id in done:
        clear_alert(connection, alert_key("file", file_id))
    return done


def skip(connection: Connection[Any], ids: Sequence[int]) -> list[int]:
    """Do not import files; running transfers of them stop."""
    return _files(connection, "skip", ids)


def reimport(connection: Connection[Any], ids: Sequence[int]) -> list[int]:
    """Fetch completed files again and announce them anew."""
    return _files(connection, "reimport", ids)


def rotate_credentials(connection: Connection[Any], vault: Vault) -> int:
    """Seal all credentials anew with the newest key; returns how many. Raises SealBroken."""
    rows = connection.execute(
        "select id, credentials from intake.sftp_servers order by id for update"
    ).fetchall()
    for server_id, sealed in rows:
        connection.execute(
            "update intake.sftp_servers set credentials = %s where id = %s",
            (vault.rotate(sealed), server_id),
        )
    return len(rows)


def _files(connection: Connection[Any], verb: str, ids: Sequence[int]) -> list[int]:
    for file_id in ids:
        status.file(connection, file_id)
    statement = sql.SQL("select {}(%s::bigint[])" + trace.FOLLOWED).format(
        sql.Identifier("intake", verb)
    )
    row = _run(connection, statement, [list(ids), trace.line()]).fetchone()
    assert row is not None  # noqa: S101 - a function call always gives one row
    done: list[int] = row[0]
    return done


def _set_active(
    connection: Connection[Any], name_or_id: str | int, *, is_active: bool
) -> dict[str, Any]:
    found = status.server(connection, name_or_id)
    connection.execute(
        "update intake.sftp_servers set is_active = %s, next_scan_at = intake.now(),"
        " updated_at = intake.now() where id = %s",
        (is_active, found["id"]),
    )
    return status.server(connection, found["id"])


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    unknown = sorted(set(values) - set(CHANGEABLE))
    if unknown:
        raise TypeError(f"a server has no {', '.join(unknown)}")
    given = dict(values)
    if given.get("host_key"):
        given["host_key"] = _public_key(given["host_key"])
    return given


def _check_move(server: Mapping[str, Any]) -> None:
    """Reject a folder that is wrong as written; real paths are compared before each scan."""
    if server.get("after_import") != "move" or not server.get("move_to"):
        return
    root = posixpath.normpath(server.get("directory") or ".")
    wanted = posixpath.normpath(server["move_to"])
    if posixpath.normpath(posixpath.join(root, wanted)) == root:
        raise move_folder_invalid()
    if root != "." and not root.startswith("/") and f"{wanted}/".startswith(f"{root}/"):
        raise MoveFolderInvalid(
            f"{wanted} below the watched folder would be {posixpath.join(root, wanted)}",
            hint="move_to is relative to the watched folder: leave its name out, or give a path"
            " from the root",
        )


def _public_key(text: str) -> str:
    lines = []
    for line in filter(None, map(str.strip, text.splitlines())):
        try:
            key = asyncssh.import_public_key(line)
        except asyncssh.KeyImportError:
            raise CredentialsInvalid(
                "the host key cannot be read", hint="give it as in known_hosts: ssh-ed25519 AAAA…"
            ) from None
        lines.append(" ".join(key.export_public_key().decode().split()[:2]))
    return "\n".join(lines)


def _free_name(connection: Connection[Any], host: str) -> str:
    taken = {row[0] for row in connection.execute("select name from intake.sftp_servers")}
    name, number = host, 1
    while name in taken:
        number += 1
        name = f"{host}-{number}"
    return name


_TAKEN = {
    "server_name_is_taken": "a server of this name exists",
    "folder_is_watched_already": "this folder of this login is watched already",
}


def _run(
    connection: Connection[Any], statement: sql.SQL | sql.Composed, parameters: Sequence[Any]
) -> psycopg.Cursor[Any]:
    try:
        return connection.execute(statement, parameters)
    except psycopg.errors.UniqueViolation as failure:
        text = _TAKEN.get(failure.diag.constraint_name or "", "it exists already")
        raise ServerExists(text, hint="list them: postroad intake servers list") from failure
    except psycopg.Error as failure:
        known = translate(failure)
        if known is None:
            raise
        raise known from failure
