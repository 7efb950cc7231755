"""The meaning of the command's exit codes, in one table."""

from __future__ import annotations

from postroad.errors import Kind

EXIT_CODES: dict[Kind, tuple[int, str]] = {
    "error": (1, "the command failed"),
    "usage": (2, "wrong option, argument or setting"),
    "not_found": (3, "no such queue, consumer, message or schema"),
    "refused": (4, "refused, nothing was changed"),
    "unavailable": (5, "a required server or program is not available"),
}
INTERRUPTED = 130
