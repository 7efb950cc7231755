"""The requests of a process, and what the answers of the journal mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from postroad.exchange import errors

CANCELLED = {"status": "CANCELLED"}


@dataclass(frozen=True, slots=True)
class Uploaded:
    """A reply that was written under its temporary name in Prepared."""

    database: str
    temporary: str
    size: int
    sha256: str
    media_type: str


def judge(answer: dict[str, Any], process: str) -> dict[str, Any]:
    """Return the protocol's answer for an answer of the journal, or raise its error."""
    match answer["status"]:
        case "OK" | "CANCELLED":
            # Only these: a repeated call gives the same answer, whatever happened since.
            kept = ("status", "expires_at")
            return {key: answer[key] for key in kept if answer.get(key) is not None}
        case "MISSING":
            raise errors.ProcessNotFound(
                f"there is no process {process}",
                hint="list them: postroad exchange processes",
                process=process,
            )
        case "FORBIDDEN":
            raise errors.NotAllowed(
                f"process {process} is another client's",
                hint="only its owner may do this; others resolve it once it is in doubt",
            )
        case "NAMES":
            raise errors.FileNotInProcess(
                "a file that is named is not one of this process",
                hint="use the names in the answer of API_1",
            )
        case "OUTCOME":
            raise errors.OutcomeNeeded(
                f"process {process} is {answer['state']}; this needs an outcome",
                hint="give the outcome: COMMITTED or ABORTED",
            )
    raise errors.ProcessContradiction(
        f"process {process} is {answer.get('state')}"
        + (f" and was {answer['outcome']}" if answer.get("outcome") else "")
        + "; this call contradicts that and changed nothing",
        process=process,
    )
