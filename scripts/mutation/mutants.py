"""Mutants: small changes of a source file, each of which some test should notice."""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
"""The replacements of comparisons: at the boundary where there is one, else the opposite."""

CALCULATED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
}

TELLING = frozenset({"log", "logger", "logging", "warnings", "print"})
"""Names of calls that only report something; removing such a call changes no behaviour."""

WORD = 40
"""The longest text that counts as a word of a protocol. A longer one is a message for people."""

SHOWN = 60
"""The number of characters of code shown in a table."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file. `where` is the function or class, dotted; `start` and `end` are octets of the source that
    `text` replaces. `number` distinguishes equal changes of one function.
    """

    path: str
    line: int
    where: str
    before: str
    after: str
    start: int
    end: int
    text: str
    number: int = 1

    @property
    def key(self) -> str:
        """A key that does not change when lines are added elsewhere."""
        more = "" if self.number == 1 else f" #{self.number}"
        return f"{self.path}::{self.where}: {self.before} -> {self.after}{more}"

    def applied(self, source: bytes) -> bytes:
        """The changed source."""
        return source[: self.start] + self.text.encode() + source[self.end :]


def mutants(source: bytes, path: str) -> list[Mutant]:
    """Every mutant of a file, in the order of its lines."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    counts: Counter[str] = Counter()
    found: list[Mutant] = []
    for where, node, other in _changes(ast.parse(source), ""):
        before, after = _in_one_line(node), "pass" if other is None else _in_one_line(other)
        if other is None or isinstance(other, ast.stmt):
            text = "pass" if other is None else ast.unparse(other)
        else:
            text = f"({ast.unparse(other)})"
        start, end = (
            starts[node.lineno - 1] + node.col_offset,
            starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0),
        )
        name = f"{where}: {before} -> {after}"
        counts[name] += 1
        found.append(Mutant(path, node.lineno, where, before, after, start, end, text, counts[name]))
    return sorted(found, key=lambda mutant: (mutant.line, mutant.start))


_Change = tuple[str, ast.expr | ast.stmt, ast.expr | ast.stmt | None]
"""The place, the node, and its replacement; None is `pass`."""


def _changes(node: ast.AST, where: str) -> Iterator[_Change]:
    """The changes of a node and of its descendants, except types, docstrings and texts for people."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        where = f"{where}.{node.name}" if where else node.name
    if _for_types(node):
        return
    if isinstance(node, ast.expr | ast.stmt):
        for other in _others(node):
            yield where, node, other
    if isinstance(node, ast.If | ast.IfExp):
        yield where, node.test, ast.UnaryOp(ast.Not(), node.test)
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "type_params", "bases"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not isinstance(child, ast.JoinedStr) and not _docstring(child):
                yield from _changes(child, where)


def _for_types(node: ast.AST) -> bool:
    """Imports, `if TYPE_CHECKING`, assignments of types and of `__all__`, keywords of classes like `frozen`."""
    if isinstance(node, ast.Import | ast.ImportFrom):
        return True
    if isinstance(node, ast.If):
        return ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.annotation) == "TypeAlias"
    if isinstance(node, ast.Assign):
        return ast.unparse(node.targets[0]) in {"__all__", "__slots__"} or "TypeVar" in ast.unparse(
            node.value
        )
    if isinstance(node, ast.keyword):
        return node.arg in {"frozen", "kw_only", "slots", "gc"}
    if isinstance(node, ast.Call):
        return ast.unparse(node.func) in {"cast", "typing.cast"}
    return False


def _docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _others(node: ast.expr | ast.stmt) -> Iterator[ast.expr | ast.stmt | None]:
    """The possible replacements of this node itself."""
    if isinstance(node, ast.stmt):
        yield from _other_statements(node)
    elif isinstance(node, ast.Compare):
        for at, operator in enumerate(node.ops):
            other = copy.deepcopy(node)
            other.ops[at] = SWAPPED[type(operator)]()
            yield other
    elif isinstance(node, ast.BoolOp):
        opposite: ast.boolop = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield ast.BoolOp(opposite, node.values)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.BinOp) and type(node.op) in CALCULATED and not _of_types(node):
        yield ast.BinOp(node.left, CALCULATED[type(node.op)](), node.right)
    elif isinstance(node, ast.Constant):
        yield from _other_constants(node)


def _other_statements(node: ast.stmt) -> Iterator[ast.stmt | None]:
    if isinstance(node, ast.Expr):
        value = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(value, ast.Call) and ast.unparse(value.func).split(".")[0] not in TELLING:
            yield None
    elif isinstance(node, ast.Raise):
        yield None
    elif isinstance(node, ast.Return) and node.value is not None and not _nothing(node.value):
        yield ast.Return(ast.Constant(None))
    elif isinstance(node, ast.AugAssign) and type(node.op) in CALCULATED:
        yield ast.AugAssign(node.target, CALCULATED[type(node.op)](), node.value)


def _nothing(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _of_types(node: ast.BinOp) -> bool:
    """Additions of texts: the other operator would be a TypeError, which every test notices."""
    return any(isinstance(side, ast.JoinedStr) or _text(side) for side in (node.left, node.right))


def _text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _other_constants(node: ast.Constant) -> Iterator[ast.expr]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int | float):
        yield ast.Constant(value + 1)
    elif isinstance(value, bytes):
        yield ast.Constant(value + b"X")
    elif isinstance(value, str) and 0 < len(value) <= WORD and " " not in value:
        yield ast.Constant(value + "X")


def _in_one_line(node: ast.expr | ast.stmt) -> str:
    """The source of a node in one line."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}..."
