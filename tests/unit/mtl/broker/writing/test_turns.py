from __future__ import annotations

from collections.abc import Callable

import pytest

from mtl.broker.writing.turns import Turns


def beginning(who: str, begun: list[str], *, wanted: bool = True) -> Callable[[], bool]:
    def begin() -> bool:
        begun.append(who)
        return wanted

    return begin


def test_concurrent_turns_are_bounded_and_in_order_of_request() -> None:
    turns, begun = Turns(2), list[str]()
    for who in "abcde":
        turns.ask(who, beginning(who, begun))
    assert begun == ["a", "b"]
    turns.done()
    assert begun == ["a", "b", "c"]
    turns.done()
    turns.done()
    assert begun == ["a", "b", "c", "d", "e"]
    turns.done()
    turns.done()
    turns.ask("f", beginning("f", begun))
    assert begun[-1] == "f"


@pytest.mark.parametrize(
    ("asked", "had"),
    [
        pytest.param("abbcb", "abc", id="a repeated request has one place"),
        pytest.param("aba", "aba", id="a later request goes to the end"),
    ],
)
def test_turns_are_given_in_order(asked: str, had: str) -> None:
    turns, begun = Turns(1), list[str]()
    for who in asked:
        turns.ask(who, beginning(who, begun))
    for _ in had:
        turns.done()
    assert "".join(begun) == had


def test_a_turn_that_is_no_longer_needed_passes_to_the_next() -> None:
    turns, begun = Turns(1), list[str]()
    turns.ask("a", beginning("a", begun))
    turns.ask("b", beginning("b", begun, wanted=False))
    turns.ask("c", beginning("c", begun))
    turns.done()
    assert begun == ["a", "b", "c"]
    turns.ask("d", beginning("d", begun))
    assert begun == ["a", "b", "c"]
