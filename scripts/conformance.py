"""Writes CONFORMANCE.md with the requirements of the documents (tests/requirements), and a page with the tests whose
markers have their ids.

Tests are parsed, not imported, so this is quick and independent of installed packages.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
CONFORMANCE = ROOT / "CONFORMANCE.md"
TESTS_PAGE = "docs/reference/conformance-tests.md"

PROTOCOLS = ("mtl", "mc0", "mbws", "mm2", "rs")
"""The documents in the order of the page. A protocol without a file in tests/requirements is not implemented yet."""

LEVELS = {
    "must": "MUST or SHALL, or a wire format without alternative",
    "should": "SHOULD",
    "may": "MAY",
    "informative": "prose that can be tested",
    "upstream": "not in the document, but in the implementations that it describes",
}
BINDING = frozenset({"must", "should"})
"""The levels that need a test."""

HEAD = """# Conformance

The requirements of each document, and how they are met. The id of a requirement leads to its tests. Where the state is
"differs", the word DEVIATES begins the difference from the document and its reason. `./scripts/conformance` generates
this page and the page of the tests from tests/requirements and the markers of the tests; they are not edited by hand.
"""
TESTS_HEAD = """# Tests of the requirements

The tests that show each requirement of [Conformance](../../CONFORMANCE.md). `./scripts/conformance` writes this page
from the markers of the tests.
"""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of a document, in our words."""

    id: str
    level: str
    text: str
    how: str

    @property
    def deviates(self) -> bool:
        """Whether the implementation differs from the document; `how` has the reason."""
        return "DEVIATES" in self.how


@dataclass(frozen=True, slots=True)
class Document:
    """A document's requirements by the titles of its sections."""

    title: str
    source: str
    sections: Mapping[str, tuple[Requirement, ...]]

    def __iter__(self) -> Iterator[Requirement]:
        for requirements in self.sections.values():
            yield from requirements


@dataclass(frozen=True, slots=True, order=True)
class Shown:
    """A marked test: its file, relative to the project, and its name (with its class's)."""

    path: str
    name: str

    def __str__(self) -> str:
        return f"[{Path(self.path).stem}](../../{self.path})::{self.name}"


class Unusable(Exception):
    """An invalid file of requirements or an invalid marker; the message says where and why."""


# --- what is required ---------------------------------------------------------------------------------------


def documents(directory: Path = TESTS / "requirements") -> list[Document]:
    """Every document that has a file. Raises `Unusable`."""
    paths = (directory / f"{protocol}.toml" for protocol in PROTOCOLS)
    return [document(path) for path in paths if path.exists()]


def document(path: Path) -> Document:
    """One file. Raises `Unusable` for an unknown level, an empty text, or an id given twice."""
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    sections: dict[str, tuple[Requirement, ...]] = {}
    seen: set[str] = set()
    for section in content["section"]:
        requirements = tuple(Requirement(id=i, **members) for i, members in section["requirements"].items())
        for requirement in requirements:
            if requirement.level not in LEVELS or not requirement.text or not requirement.how:
                raise Unusable(f"{path.name}: {requirement.id} needs text, how, and a level of {set(LEVELS)}")
            if requirement.id in seen:
                raise Unusable(f"{path.name}: {requirement.id} is defined twice")
            seen.add(requirement.id)
        sections[section["title"]] = requirements
    return Document(content["title"], content["source"], sections)


# --- what is tested -----------------------------------------------------------------------------------------


def evidence(directory: Path = TESTS, root: Path = ROOT) -> dict[str, list[Shown]]:
    """The marked tests by requirement, in order. Raises `Unusable`."""
    found: dict[str, list[Shown]] = {}
    for path in sorted(directory.rglob("test_*.py")):
        source = path.read_text(encoding="utf-8")
        if "mark.requirement" not in source:
            continue
        relative = path.relative_to(root).as_posix()
        for name, ids in _marked(ast.parse(source, str(path)).body, relative):
            for requirement in ids:
                found.setdefault(requirement, []).append(Shown(relative, name))
    return {requirement: sorted(set(tests)) for requirement, tests in found.items()}


def _marked(body: Iterable[ast.stmt], path: str, inside: str = "") -> Iterator[tuple[str, list[str]]]:
    """The tests of a module or class, with the ids of their own markers and of their class's."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{inside}{node.name}"
            ids = [requirement for mark in node.decorator_list for requirement in _ids(mark, path)]
            if not isinstance(node, ast.ClassDef):
                yield name, ids
                continue
            for test, own in _marked(node.body, path, f"{name}."):
                yield test, ids + own


def _ids(mark: ast.expr, path: str) -> list[str]:
    """The arguments of `pytest.mark.requirement(...)`; none for another decorator."""
    if not isinstance(mark, ast.Call) or ast.unparse(mark.func) != "pytest.mark.requirement":
        return []
    ids = [arg.value if isinstance(arg, ast.Constant) else None for arg in mark.args]
    if not ids or not all(isinstance(requirement, str) for requirement in ids):
        raise Unusable(f"{path}:{mark.lineno}: a requirement marker takes ids, spelt out")
    return [str(requirement) for requirement in ids]


# --- the pages ----------------------------------------------------------------------------------------------


def page(required: Iterable[Document], tested: Mapping[str, list[Shown]]) -> str:
    """The text of CONFORMANCE.md."""
    parts = [HEAD, *(f"- **{level}**: {meaning}" for level, meaning in LEVELS.items())]
    for document in required:
        deviations = sum(requirement.deviates for requirement in document)
        count = sum(bool(tested.get(requirement.id)) for requirement in document)
        parts += [
            "",
            f"## {document.title}",
            "",
            f"<{document.source}>: {len(list(document))} requirements, {count} tested, {deviations} with a difference.",
            "",
            "| id | level | required | state | how |",
            "|---|---|---|---|---|",
        ]
        for title, requirements in document.sections.items():
            parts += [f"| | | **{title}** | | |", *map(_row, requirements)]
    return "\n".join(parts) + "\n"


def _row(requirement: Requirement) -> str:
    state = "differs" if requirement.deviates else "met"
    cells = (
        f"[{requirement.id}]({TESTS_PAGE}#{requirement.id.lower()})",
        requirement.level,
        _cell(requirement.text),
        state,
        _cell(requirement.how),
    )
    return f"| {' | '.join(cells)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def tests_page(required: Iterable[Document], tested: Mapping[str, list[Shown]]) -> str:
    """The text of the page with the tests of each requirement."""
    parts = [TESTS_HEAD.rstrip("\n")]
    for document in required:
        parts += ["", f"## {document.title}", "", "| id | tests |", "|---|---|"]
        for requirement in document:
            tests = "<br>".join(map(str, tested.get(requirement.id, [])))
            parts.append(f'| <a id="{requirement.id.lower()}"></a>{requirement.id} | {tests} |')
    return "\n".join(parts) + "\n"


def main() -> int:
    """Write both pages."""
    required, tested = documents(), evidence()
    CONFORMANCE.write_text(page(required, tested), encoding="utf-8")
    (ROOT / TESTS_PAGE).write_text(tests_page(required, tested), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
