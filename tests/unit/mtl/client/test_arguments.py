from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest

from mtl.client.arguments import checked
from mtl.errors import OptionError


@checked
def function(
    text: str = "",
    number: int | None = None,
    real: float = 0.0,
    word: Literal["a", "b"] | int = "a",
    names: str | Iterable[str] = (),
    table: Mapping[str, int] | None = None,
    path: str | os.PathLike[str] | None = None,
    flag: bool = False,
    octets: bytes | memoryview = b"",
    anything: Any = None,
    **more: object,
) -> int:
    """Count."""
    return 7


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"text": "x", "number": 1, "real": 1, "word": "b", "names": ["a"], "table": {"a": 1}},
        {"word": 3, "names": iter(["a"]), "path": Path("a"), "flag": True, "octets": memoryview(b"")},
        {"anything": object(), "other": b"x"},
    ],
)
def test_right_arguments_are_passed(arguments: dict[str, Any]) -> None:
    assert function(**arguments) == 7
    assert function.__doc__ == "Count."


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("text", b"x", "text has to be str, not bytes"),
        ("text", None, "str, not NoneType"),
        ("number", "1", "int or None, not str"),
        ("number", True, "int or None, not bool"),
        ("number", 1.0, "int or None, not float"),
        ("real", "1", "float, not str"),
        ("real", False, "float, not bool"),
        ("word", b"a", "'a' or 'b' or int, not bytes"),
        ("names", b"orders", "Iterable, not bytes"),
        ("names", 7, "str or Iterable, not int"),
        ("table", [("a", 1)], "Mapping or None, not list"),
        ("path", 3, "PathLike or None, not int"),
        ("flag", 1, "bool, not int"),
        ("octets", "x", "bytes or memoryview, not str"),
    ],
)
def test_another_type_is_named(name: str, value: Any, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        function(**{name: value})


def test_another_word_and_another_number_are_option_errors() -> None:
    with pytest.raises(OptionError, match="word is 'c'; it has to be 'a' or 'b'"):
        function(word="c")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"real is nan; .* finite"):
        function(real=float("nan"))


def test_an_unknown_argument_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        function(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)  # type: ignore[arg-type, call-arg]
