"""Mutants of Python, from its syntax tree.

Operators are those of the SQL mutator, where Python has the same: tools of the package index change
numbers, strings and operators, but none drops a statement, which is how an `fsync`, a lock or a
commit gets lost.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from proof.mutations.mutant import Edit, Mutant, number

__all__ = ["python_mutants"]

_COMPARED: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
}
# Logs and metrics promise nothing.
_QUIET = ("log.", "_log.", "logger.", "_logger.", "structlog.", "metrics.", "warnings.")


def python_mutants(file: str, text: str) -> list[Mutant]:
    """Return the mutants of one file."""
    return list(number(file, text, _Mutator(text).edits()))


class _Mutator:
    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = [0]
        for line in text.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def edits(self) -> Iterator[Edit]:
        yield from self._walk(ast.parse(self._text), "")

    def _walk(self, node: ast.AST, function: str) -> Iterator[Edit]:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            function = f"{function}.{node.name}".lstrip(".")
            for child in node.body:
                yield from self._walk(child, function)
            return
        if isinstance(node, ast.If) and _source(node.test) == "TYPE_CHECKING":
            return
        if isinstance(node, (ast.AnnAssign, ast.Assign)) and not function:
            return
        yield from self._of(node, function)
        annotation = node.annotation if isinstance(node, ast.AnnAssign) else None
        for below in ast.iter_child_nodes(node):
            if below is not annotation:
                yield from self._walk(below, function)

    def _of(self, node: ast.AST, function: str) -> Iterator[Edit]:
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            is_endless = isinstance(node.test, ast.Constant)
            if not is_endless and not isinstance(node.test, ast.BoolOp):
                yield self._replace(node.test, "not ({})", "negate a condition", function)
        if isinstance(node, ast.BoolOp):
            is_and = isinstance(node.op, ast.And)
            what = "drop a condition" if is_and else "drop an alternative"
            for value in node.values:
                yield self._replace(value, "True" if is_and else "False", what, function)
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            found = _COMPARED.get(type(node.ops[0]))
            if found:
                left, right = self._end(node.left), self._start(node.comparators[0])
                sign = self._text.index(found[0], left, right)
                yield Edit(sign, sign + len(found[0]), found[1], "move a border", function)
        if isinstance(node, ast.Constant) and isinstance(node.value, bool) and function:
            yield self._replace(node, str(not node.value), "flip a constant", function)
        if isinstance(node, (ast.With, ast.AsyncWith)):
            items = node.items
            if len(items) == 1 and items[0].optional_vars is None:
                start, end = self._start(node), self._end(items[0].context_expr)
                yield Edit(start, end, "if True", "drop a lock", function)
        is_attribute = isinstance(node, ast.Assign) and function.endswith("__init__")
        if isinstance(node, ast.stmt) and self._is_dropped(node) and not is_attribute:
            yield self._replace(node, "pass", _kind(node), function)

    def _is_dropped(self, node: ast.stmt) -> bool:
        if isinstance(node, ast.Expr):
            value = node.value.value if isinstance(node.value, ast.Await) else node.value
            return isinstance(value, ast.Call) and not _source(value).startswith(_QUIET)
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            return isinstance(node, ast.AugAssign) or any(
                isinstance(target, (ast.Attribute, ast.Subscript)) for target in targets
            )
        return isinstance(node, (ast.Raise, ast.Break, ast.Continue, ast.Delete))

    def _replace(self, node: ast.expr | ast.stmt, after: str, kind: str, function: str) -> Edit:
        start, end = self._start(node), self._end(node)
        return Edit(start, end, after.format(self._text[start:end]), kind, function)

    def _start(self, node: ast.expr | ast.stmt) -> int:
        return self._offset(node.lineno, node.col_offset)

    def _end(self, node: ast.expr | ast.stmt) -> int:
        return self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _offset(self, line: int, column: int) -> int:
        start = self._lines[line - 1]
        # Columns are counted in bytes.
        text = self._text[start : self._lines[line]]
        return start + len(text.encode()[:column].decode())


def _source(node: ast.AST) -> str:
    return ast.unparse(node)


def _kind(node: ast.stmt) -> str:
    return "drop an error" if isinstance(node, ast.Raise) else "drop a statement"
