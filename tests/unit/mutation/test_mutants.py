"""Mutants of source text: changed and unchanged constructs."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutation.mutants import mutants
from mutation.verdicts import reasons


def changes(source: str) -> list[tuple[str, str]]:
    return [(mutant.before, mutant.after) for mutant in mutants(source.encode(), "a.py")]


@pytest.mark.parametrize(
    ("source", "change"),
    [
        ("x = a < b", ("a < b", "a <= b")),
        ("x = a is None", ("a is None", "a is not None")),
        ("x = a and b", ("a and b", "a or b")),
        ("x = not a", ("not a", "a")),
        ("x = -a", ("-a", "a")),
        ("x = a - b", ("a - b", "a + b")),
        ("x += a", ("x += a", "x -= a")),
        ("x = 3", ("3", "4")),
        ("x = True", ("True", "False")),
        ("x = 'word'", ("'word'", "'wordX'")),
        ("x = b'word'", ("b'word'", "b'wordX'")),
        ("if a:\n    x()", ("a", "not a")),
        ("x = a if b else c", ("b", "not b")),
        ("x.y(a)", ("x.y(a)", "pass")),
        ("raise a", ("raise a", "pass")),
        ("def f():\n    return a", ("return a", "return None")),
    ],
)
def test_constructs_that_are_changed(source: str, change: tuple[str, str]) -> None:
    assert change in changes(source)


@pytest.mark.parametrize(
    "source",
    [
        '"""A docstring."""',
        "x = 'a message for people'",
        "x: Literal['a']",
        "import a",
        "class A(B, frozen=True, kw_only=True):\n    pass",
        "if TYPE_CHECKING:\n    x = 1",
        "log.warning(a)",
        "def f():\n    return None",
        "x = f'{a} has {b}' + c",
        "__all__ = ['a']",
    ],
)
def test_constructs_that_are_never_changed(source: str) -> None:
    assert changes(source) == []


def test_a_mutant_changes_exactly_one_place() -> None:
    source = "# ä\nx = 'ä' + a(\n    1,\n    2)\ny = 3\n".encode()
    for mutant in mutants(source, "a.py"):
        changed = mutant.applied(source)
        assert changed != source
        assert source[: mutant.start] == changed[: mutant.start]
        assert changed.endswith(source[mutant.end :])
        compile(changed, "a.py", "exec")


def test_keys_of_equal_changes_differ_and_do_not_depend_on_lines() -> None:
    source = b"class A:\n    def f(self):\n        g()\n        g()\n"
    keys = [mutant.key for mutant in mutants(source, "a.py")]
    assert keys == ["a.py::A.f: g() -> pass", "a.py::A.f: g() -> pass #2"]
    assert [mutant.key for mutant in mutants(b"\n\n" + source, "a.py")] == keys


def test_the_survivors_with_a_reason_are_mutants_of_the_code() -> None:
    """After a change of the code an entry may be obsolete: give it the new key, or remove it."""
    root = Path(__file__).parents[3]
    for key in reasons(root / "tests" / "requirements" / "survivors.toml"):
        path = key.split("::")[0]
        assert key in {mutant.key for mutant in mutants((root / path).read_bytes(), path)}
