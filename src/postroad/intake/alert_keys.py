"""The keys under which the intake alerts, one for each thing that can be wrong."""

from __future__ import annotations

__all__ = ["cleanup_alert", "file_alert", "server_alert", "store_alert", "temporary_alert"]


def server_alert(server_id: int) -> str:
    """A server cannot be used."""
    return f"intake.server.{server_id}"


def file_alert(file_id: int) -> str:
    """A file could not be imported."""
    return f"intake.file.{file_id}"


def cleanup_alert(file_id: int) -> str:
    """An imported file could not be removed at its source."""
    return f"intake.cleanup.{file_id}"


def store_alert(store: str) -> str:
    """The store cannot be used."""
    return f"intake.store.{store}"


def temporary_alert(machine: str) -> str:
    """The temporary folder of a machine is full."""
    return f"intake.temporary.{machine}"
