"""Stores of imported files: a folder, or any S3-compatible store.

A store takes a small file by one request and a large one in parts. A part is durable when
`put_part` returns, so a transfer can be resumed after the last one. An object appears under its key
completely or not at all.
"""

from __future__ import annotations

from postroad.intake.stores.store import Part, Store, open_store

__all__ = ["Part", "Store", "open_store"]
