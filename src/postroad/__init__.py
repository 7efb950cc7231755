"""Postroad: an integration server on PostgreSQL.

It carries messages, files and records between databases, services and partners, so that nothing
is lost, nothing is processed twice and nothing stays stuck, whatever crashes. Each room is a
package of its own; `postroad.bus` is the message bus that all of them stand on.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
