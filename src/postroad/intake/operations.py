"""What an operator can do: servers, their host keys, files, and keys of the vault.

Each function takes a connection and works in the caller's transaction.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import asyncssh
import psycopg
from psycopg.types.json import Jsonb

from postroad.intake import errors, status
from postroad.intake.cleanup import move_folder_invalid
from postroad.intake.credentials import Credentials
from postroad.intake.source import exported
from postroad.postgres.calls import Connection, Row, call, change
from postroad.vault import Vault

# The settings that determine where the credentials are sent.
_LOGIN = ("host", "port", "username", "host_key", "trusts_first_key")


async def create_server(
    connection: Connection, vault: Vault, credentials: Credentials, values: Mapping[str, Any]
) -> Row:
    """Add a server and return it; its name is its host unless given. Raises ServerExists."""
    given = _checked(values, values) | {"credentials": credentials.seal(vault)}
    server_id = await _call(connection, "create_server", _json(given))
    return await status.server(connection, server_id)


async def change_server(
    connection: Connection,
    vault: Vault,
    server: str,
    values: Mapping[str, Any],
    credentials: Credentials | None = None,
) -> Row:
    """Change settings of a server and return it; it is scanned again immediately.

    A changed host, port, user name or host key needs the credentials again: stored ones must not be
    sent to a host for which they were not entered. Raises CredentialsNeeded.
    """
    found = await status.server(connection, server)
    given = _checked(values, {**found, **values})
    changed = [name for name in _LOGIN if name in given and given[name] != found[name]]
    if changed and credentials is None:
        raise errors.CredentialsNeeded(
            f"changing {', '.join(changed)} of {found['name']} requires its credentials",
            hint="pass the password or the private key with the change",
        )
    if credentials is not None:
        given["credentials"] = credentials.seal(vault)
    return await _change(connection, found["id"], given)


async def delete_server(connection: Connection, server: str) -> None:
    """Remove a server with the journal of its files; the objects in the store stay.

    Example: postroad intake servers remove acme --yes
    """
    found = await status.server(connection, server)
    await _call(connection, "delete_server", found["id"])


async def pause_server(connection: Connection, server: str) -> Row:
    """Stop scans, new transfers and clean-ups of a server; running ones end.

    Example: postroad intake servers pause acme
    """
    found = await status.server(connection, server)
    return await _change(connection, found["id"], {"is_active": False})


async def resume_server(connection: Connection, server: str) -> Row:
    """Resume a paused server; it is scanned immediately.

    Example: postroad intake servers resume acme
    """
    found = await status.server(connection, server)
    return await _change(connection, found["id"], {"is_active": True})


async def trust_host_key(
    connection: Connection,
    server: str,
    *,
    host_key: Annotated[str | None, "The key to trust; default: the one that it showed."] = None,
) -> Row:
    """Trust a changed host key and resume the server.

    Example: postroad intake servers trust acme
    """
    found = await status.server(connection, server)
    key = None if host_key is None else _public_key(host_key)
    await _call(connection, "trust_host_key", found["id"], key)
    return await status.server(connection, found["id"])


async def renew_credentials(
    connection: Connection,
    server: str,
    *,
    vault: Vault,
    password: Annotated[str | None, "The new password; default: a new key pair is created."] = None,
) -> Row:
    """Replace the credentials of a server; it is scanned again immediately.

    A new private key exists only in the vault; its public key is returned, for the server's
    operator.
    """
    found, public_key = await status.server(connection, server), None
    if password:
        given = Credentials(password=password)
    else:
        key = asyncssh.generate_private_key("ssh-ed25519", comment=f"postroad {found['name']}")
        given = Credentials(private_key=key.export_private_key().decode())
        public_key = key.export_public_key().decode().strip()
    await _change(connection, found["id"], {"credentials": given.seal(vault)})
    return {"public_key": public_key}


async def retry(connection: Connection, ids: Sequence[int]) -> Row:
    """Retry files now that have failed, vanished, been superseded or skipped, or that wait.

    With --all: only failed files.

    Example: postroad intake retry --all --server acme
    """
    return await _files(connection, "retry", ids)


async def skip(connection: Connection, ids: Sequence[int]) -> Row:
    """Do not import files; running transfers of them stop.

    Example: postroad intake files skip 42 43
    """
    return await _files(connection, "skip", ids)


async def reimport(connection: Connection, ids: Sequence[int]) -> Row:
    """Fetch completed files again and announce them again.

    Example: postroad intake files reimport 42
    """
    return await _files(connection, "reimport", ids)


async def rotate_credentials(connection: Connection, vault: Vault) -> int:
    """Seal all credentials with the newest key; returns their number. Raises SealBroken."""
    text = "select id, credentials from intake.sftp_servers order by id for update"
    rows = await (await connection.execute(text)).fetchall()
    sealed = [vault.rotate(row[1]) for row in rows]
    await _call(connection, "reseal", [row[0] for row in rows], sealed)
    return len(rows)


async def _files(connection: Connection, function: str, ids: Sequence[int]) -> Row:
    done = await change(connection, f"intake.{function}", list(ids))
    return {"ids": done, "count": len(done)}


async def _change(connection: Connection, server_id: int, values: dict[str, Any]) -> dict[str, Any]:
    await _call(connection, "change_server", server_id, _json(values))
    return await status.server(connection, server_id)


def _checked(values: Mapping[str, Any], server: Mapping[str, Any]) -> dict[str, Any]:
    """Reject an invalid folder by its text; real paths are compared before each scan."""
    if server.get("after_import") == "move" and server.get("move_to"):
        root = posixpath.normpath(server.get("directory") or ".")
        wanted = posixpath.normpath(server["move_to"])
        if posixpath.normpath(posixpath.join(root, wanted)) == root:
            raise move_folder_invalid()
        if root != "." and not root.startswith("/") and f"{wanted}/".startswith(f"{root}/"):
            raise errors.MoveFolderInvalid(
                f"{wanted} below the watched folder would be {posixpath.join(root, wanted)}",
                hint="move_to is relative to the watched folder: omit its name, or enter a path"
                " from the root",
            )
    given = dict(values)
    if given.get("host_key"):
        given["host_key"] = _public_key(given["host_key"])
    return given


def _public_key(text: str) -> str:
    lines = []
    for line in filter(None, map(str.strip, text.splitlines())):
        try:
            key = asyncssh.import_public_key(line)
        except asyncssh.KeyImportError:
            raise errors.CredentialsInvalid(
                "the host key cannot be read", hint="write it as in known_hosts: ssh-ed25519 AAAA…"
            ) from None
        lines.append(exported(key))
    return "\n".join(lines)


def _json(values: Mapping[str, Any]) -> Jsonb:
    # Only intervals cannot be JSON, and PostgreSQL can read the text that Python writes.
    return Jsonb(values, dumps=partial(json.dumps, default=str))


_TAKEN = {
    "server_name_is_taken": "a server of this name exists",
    "folder_is_watched_already": "this folder of this login is watched already",
}


async def _call(connection: Connection, function: str, *parameters: Any) -> Any:
    try:
        return await call(connection, f"intake.{function}", *parameters)
    except psycopg.errors.UniqueViolation as failure:
        text = _TAKEN.get(failure.diag.constraint_name or "", "it exists already")
        raise errors.ServerExists(text, hint="list them: postroad intake servers list") from failure
