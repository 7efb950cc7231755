from __future__ import annotations

import re
from pathlib import Path

import postroad.coordination
from postroad.coordination.errors import CoordinationError

SQL = Path(postroad.coordination.__file__).parent / "sql"
# Raised and caught inside one function; nobody else sees them.
INTERNAL = {"PC098", "PC099"}


def test_every_code_that_the_sql_raises_has_a_class_and_the_other_way_round() -> None:
    raised = {
        code
        for file in SQL.rglob("*.sql")
        for code in re.findall(r"'(PC\d{3})'", file.read_text(encoding="utf-8"))
    }
    known = {leaf.code for leaf in CoordinationError.__subclasses__() if leaf.code.startswith("PC")}
    assert raised - INTERNAL == known


def test_public_names_are_the_names_that_are_there() -> None:
    names = postroad.coordination.__all__
    assert all(hasattr(postroad.coordination, name) for name in names)
    assert list(names) == sorted(names, key=lambda n: (not n.isupper(), n))
