"""Mutants of SQL and PL/pgSQL.

The text is cut into tokens and brackets, not parsed: templates hold placeholders, and most of the
statements that matter are strings which functions execute. Bodies of functions, and strings that
contain SQL, are mutated like the rest. A change that PostgreSQL refuses is no mutant; the judge
leaves it out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from proof.mutations.mutant import Edit, Mutant, number

__all__ = ["sql_mutants"]

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|--[^\n]*|/\*.*?\*/)
  | (?P<dollar>\$(?:[a-z_]\w*)?\$)
  | (?P<string>[eE]?'(?:[^'\\]|''|\\.)*')
  | (?P<quoted>"[^"]*")
  | (?P<word>[a-zA-Z_][\w$]*|\{[a-z_]+\}|\$\d+|%\d*\$?[sIL])
  | (?P<number>\d+(?:\.\d+)?)
  | (?P<sign><=|>=|<>|!=|:=|::|=>|->>|->|\|\||&&|@>|<@|\?\||\?&|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_SQL_STRING = re.compile(
    r"\b(select|update|delete|insert|lock table|truncate|where|from)\b|\$\d|^ ?(and|or)\b"
)
_OPEN = {"(": ")", "[": "]"}
# Words that no operand of `and` and `or` contains.
_BORDERS = frozenset(
    """
    where on having if elsif when then else loop select from group order limit offset returning
    union intersect except for window join cross full inner set values with as into using begin
    declare return perform execute exit continue while do end default raise exception filter
    returns language constant materialized insert update delete call create
    """.split()  # noqa: SIM905 - readable
)
_BEGIN_STATEMENT = {";", "then", "else", "loop", "begin"}
_STATEMENTS = {"perform", "insert", "update", "delete", "execute", "raise", "exit", "continue"}
_CONDITIONS = {"where", "on", "having", "if", "elsif", "when", "while"}
_FENCES = re.compile(r"\b(tokens?|leased_until|fence|lease)\b")
_COMPARED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
_SWAPPED = {"least": "greatest", "greatest": "least", "min": "max", "max": "min"}
_FLIPPED = {"true": "false", "false": "true"}


@dataclass
class _Node:
    """A token, or what stands between two brackets or `case` and `end`."""

    text: str
    start: int
    end: int
    kind: str
    inside: list[_Node] | None = None

    @property
    def word(self) -> str:
        return self.text.lower() if self.kind in ("word", "sign") else ""


def sql_mutants(file: str, text: str) -> list[Mutant]:
    """Return the mutants of one file."""
    return list(number(file, text, _edits(text)))


def _edits(text: str) -> Iterator[Edit]:
    pending = [(0, len(text), "")]
    while pending:
        start, end, function = pending.pop()
        tokens: list[_Node] = []
        place = start
        while place < end:
            found = _TOKEN.match(text, place, end)
            assert found is not None
            assert found.lastgroup is not None
            kind, place = found.lastgroup, found.end()
            if kind == "dollar":
                close = text.find(found[0], place, end)
                close = end if close < 0 else close
                pending.append((place, close, _function(tokens) or function))
                # One token, so that what follows is not mistaken for a part of the body.
                tokens.append(_Node(";", found.start(), found.end(), "body"))
                place = min(close + len(found[0]), end)
            elif kind != "space":
                node = _Node(found[0], found.start(), found.end(), kind)
                if kind == "string" and _is_sql(tokens, node):
                    inside = node.start + node.text.index("'") + 1
                    pending.append((inside, node.end - 1, _function(tokens) or function))
                tokens.append(node)
        yield from _Segment(text, function, tokens).edits()


def _function(tokens: list[_Node]) -> str:
    """The function that the last `create function` names."""
    for place in range(len(tokens) - 1, 0, -1):
        if tokens[place].word == "function" and tokens[place - 1].word in ("replace", "create"):
            name = tokens[place + 1 : place + 1 + 3]
            return "".join(part.text for part in name if part.text != "(")
    return ""


def _is_sql(before: list[_Node], node: _Node) -> bool:
    last = [token.word for token in before[-3:]]
    if {"exception", "hint", "message", "errcode", "warning"} & set(last):
        return False
    return bool(_SQL_STRING.search(node.text[1:-1]))


def _tree(tokens: list[_Node]) -> list[_Node]:
    """Put what is between brackets, and between `case` and `end`, under one node."""
    top: list[_Node] = []
    stack: list[tuple[str, list[_Node]]] = [("", top)]
    for place, token in enumerate(tokens):
        following = tokens[place + 1].word if place + 1 < len(tokens) else ""
        previous = tokens[place - 1].word if place else ""
        here = stack[-1][1]
        if token.text in _OPEN or (token.word == "case" and previous != "end"):
            group = _Node(token.text, token.start, token.end, "group", [])
            here.append(group)
            assert group.inside is not None
            stack.append((_OPEN.get(token.text, "end"), group.inside))
        elif token.text.lower() == stack[-1][0] and not (
            token.word == "end" and following in ("if", "loop")
        ):
            stack.pop()
            stack[-1][1][-1].end = token.end
        else:
            here.append(token)
    while len(stack) > 1:  # a piece of a statement, whose rest is another string
        stack.pop()
        stack[-1][1][-1].end = tokens[-1].end
    return top


class _Segment:
    """The edits of one body, string or file; nested ones are segments of their own."""

    def __init__(self, text: str, function: str, tokens: list[_Node]) -> None:
        self._text = text
        self._outer = function
        self._tokens = tokens
        self._names = [
            (token.start, _function(tokens[: place + 4]))
            for place, token in enumerate(tokens)
            if token.word == "function"
        ]

    def edits(self) -> Iterator[Edit]:
        tree = _tree(self._tokens)
        yield from self._level(tree)

    def _edit(self, start: int, end: int, after: str, operator: str) -> Edit:
        named = [name for at, name in self._names if at < start and name]
        return Edit(start, end, after, operator, named[-1] if named else self._outer)

    def _level(self, nodes: list[_Node]) -> Iterator[Edit]:
        yield from self._statements(nodes)
        yield from self._locks(nodes)
        yield from self._orders(nodes)
        yield from self._limits(nodes)
        yield from self._signs(nodes)
        yield from self._conditions(nodes)
        for node in nodes:
            if node.inside is not None:
                yield from self._level(node.inside)

    def _statements(self, nodes: list[_Node]) -> Iterator[Edit]:
        begins = True
        depth_begun = any(node.word == "begin" for node in nodes)
        if not depth_begun:
            return
        in_body = False
        for place, node in enumerate(nodes):
            if node.word == "begin":
                in_body = True
            if in_body and begins and self._is_statement(nodes, place):
                close = next((other for other in nodes[place:] if other.text == ";"), None)
                if close is not None and close.kind == "sign":
                    what = self._text[node.start : close.start]
                    yield self._edit(node.start, close.start, "null", _kind_of_statement(what))
            begins = node.word in _BEGIN_STATEMENT or node.text == ";"

    def _is_statement(self, nodes: list[_Node], place: int) -> bool:
        if nodes[place].word in _STATEMENTS:
            return True
        if nodes[place].kind != "word" or nodes[place].word in _BORDERS:
            return False
        # v_row.name[1] := …
        for node in nodes[place + 1 : place + 5]:
            if node.text == ":=":
                return True
            if node.text != "." and node.kind not in ("word", "group"):
                return False
        return False

    def _locks(self, nodes: list[_Node]) -> Iterator[Edit]:
        for place, node in enumerate(nodes):
            words = [other.word for other in nodes[place : place + 8]]
            if node.word == "for" and words[1:2] and words[1] in ("update", "share", "no", "key"):
                length = next(n for n, w in enumerate(words) if w in ("update", "share")) + 1
                if words[length : length + 1] == ["of"]:
                    length += 2
                if words[length : length + 2] == ["skip", "locked"]:
                    length += 2
                    yield self._edit(
                        nodes[place + length - 2].start, nodes[place + length - 1].end, "",
                        "wait for a lock",
                    )  # fmt: skip
                yield self._edit(node.start, nodes[place + length - 1].end, "", "drop a lock")
            if node.word.startswith("pg_try_advisory"):
                yield self._edit(node.start, nodes[place + 1].end, "true", "drop a lock")
            if node.word == "nowait":
                yield self._edit(node.start, node.end, "", "wait for a lock")

    def _orders(self, nodes: list[_Node]) -> Iterator[Edit]:
        for place, node in enumerate(nodes):
            if node.word != "order" or place + 1 >= len(nodes) or nodes[place + 1].word != "by":
                continue
            last = None
            for other in nodes[place + 2 :]:
                if other.text in (",", ";", ")") or other.word in _BORDERS or other.kind == "body":
                    break
                last = other
            if last is None:
                continue
            if last.word == "desc":
                yield self._edit(last.start, last.end, "", "reverse an order")
            else:
                yield self._edit(last.end, last.end, " desc", "reverse an order")

    def _limits(self, nodes: list[_Node]) -> Iterator[Edit]:
        for node, following in pairwise(nodes):
            if node.word == "limit" and following.text != "1":
                yield self._edit(node.start, following.end, "", "drop a limit")

    def _signs(self, nodes: list[_Node]) -> Iterator[Edit]:
        for place, node in enumerate(nodes):
            following = nodes[place + 1] if place + 1 < len(nodes) else None
            previous = nodes[place - 1] if place else None
            if node.text in _COMPARED and node.kind == "sign":
                yield self._edit(node.start, node.end, _COMPARED[node.text], "move a border")
            if following is None or previous is None:
                continue
            if node.word in _SWAPPED and following.text == "(":
                yield self._edit(node.start, node.end, _SWAPPED[node.word], "swap a function")
            is_step = node.text in "+-" and following.text == "1"
            if is_step and previous.kind in ("word", "group") and previous.word not in _BORDERS:
                yield self._edit(node.start, following.end, "", "drop a step")
            if node.word in _FLIPPED and previous.word in (":=", "return", "then", "else", ","):
                yield self._edit(node.start, node.end, _FLIPPED[node.word], "flip a constant")

    def _conditions(self, nodes: list[_Node]) -> Iterator[Edit]:
        place = 0
        while place < len(nodes):
            if self._is_border(nodes, place):
                place += 1
                continue
            begin = place
            while place < len(nodes) and not self._is_border(nodes, place):
                place += 1
            border = nodes[begin - 1].word if begin else ""
            before = [node.word for node in nodes[max(begin - 3, 0) : begin]]
            yield from self._condition(nodes[begin:place], border, before)

    def _is_border(self, nodes: list[_Node], place: int) -> bool:
        node = nodes[place]
        if node.text in (",", ";", ":=", "=>") or node.kind == "body":
            return True
        following = nodes[place + 1].word if place + 1 < len(nodes) else ""
        previous = nodes[place - 1].word if place else ""
        if node.word in ("left", "right"):
            return following in ("join", "outer")
        if node.word == "or":
            return previous == "create"
        if node.word == "replace":
            return previous == "or"
        if node.word == "from":
            return previous != "distinct"
        return node.word in _BORDERS

    def _condition(self, run: list[_Node], border: str, before: list[str]) -> Iterator[Edit]:
        alternatives = _split(run, "or")
        for alternative in alternatives:
            start, end = alternative[0].start, alternative[-1].end
            if len(alternatives) > 1:
                yield self._edit(start, end, "false", "drop an alternative")
            conditions = _split(alternative, "and")
            if len(conditions) == 1:
                continue
            for condition in conditions:
                start, end = condition[0].start, condition[-1].end
                what = self._text[start:end]
                yield self._edit(start, end, "true", _kind_of_condition(what))
        is_whole = len(alternatives) == 1 and len(_split(run, "and")) == 1
        if border not in _CONDITIONS or not is_whole:
            return
        if (border == "on" and "conflict" in before) or "exception" in before:
            return
        start, end = run[0].start, run[-1].end
        what = self._text[start:end]
        if border in ("where", "on", "having"):
            yield self._edit(start, end, "true", _kind_of_condition(what))
        elif len(run) > 1 or (
            run[0].kind == "word" and run[0].text[0] not in "{%" and run[0].word not in _FLIPPED
        ):
            yield self._edit(start, end, f"not ({what})", "negate a condition")


def _split(run: list[_Node], word: str) -> list[list[_Node]]:
    parts: list[list[_Node]] = [[]]
    between = False
    for node in run:
        between = between or node.word == "between"
        if node.word == word and not (word == "and" and between):
            parts.append([])
            continue
        if node.word == "and":
            between = False
        parts[-1].append(node)
    return [part for part in parts if part]


def _kind_of_condition(what: str) -> str:
    return "drop a fence" if _FENCES.search(what) else "drop a condition"


def _kind_of_statement(what: str) -> str:
    if re.search(r"advisory|lock table", what):
        return "drop a lock"
    if what.startswith("raise"):
        return "drop an error"
    return "drop a check" if re.match(r"perform mbus\._check", what) else "drop a statement"
