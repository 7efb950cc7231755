"""Where imported files go: a folder, or any store that speaks S3.

A store takes a small file in one call and a large one in parts. A part is durable when `put_part`
returns; parts survive the death of whoever sent them, so that a transfer goes on from the last one.
An object appears under its key at once and whole, or not at all.
"""

from __future__ import annotations

from postroad.intake.stores.store import Part, Store, open_store

__all__ = ["Part", "Store", "open_store"]
