"""The tour of the examples runs as it is written there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from postroad.postgres.binaries import find_binaries

EXAMPLES = Path(__file__).parents[3] / "examples"

SQL_SAYS = """\
== by hand
booked: rooms_reservations, book_tickets to, book_tickets from, transfer_to, transfer_from
cancelled
left: 0
== with create_saga
booked: rooms_reservations, book_tickets, book_tickets, transfer_to, transfer_from
room done
ticket_to compensating
ticket_from failed
transfer_to skipped
transfer_from skipped
compensates ticket_to
compensates room
cancelled, saga compensated, ticket_from: the bung was taken
left: 0
"""

PYTHON_SAYS = """\
Alice: completed
✔ room done
├─ ✔ ticket_to done
│  └─ ✔ transfer_to done
└─ ✔ ticket_from done
   └─ ✔ transfer_from done
"""


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_tour_in_sql(database: str) -> None:
    psql = find_binaries().folder / "psql"
    said = run(str(psql), "-X", "-v", "ON_ERROR_STOP=1", "-f", str(EXAMPLES / "tour.sql"), database)
    assert said == SQL_SAYS


def test_the_tour_in_python(database: str) -> None:
    said = run(sys.executable, str(EXAMPLES / "tour.py"), database)
    assert said.startswith(PYTHON_SAYS)
    assert "Bob: compensated\n↩ room compensated" in said
    assert "✘ ticket_from failed" in said
    assert "(no seats)" in said
    assert said.endswith("booked: [('Alice', 5)]\n")
