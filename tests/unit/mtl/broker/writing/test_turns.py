from __future__ import annotations

from collections.abc import Callable

import pytest

from mtl.broker.writing.turns import Turns


def beginning(name: str, begun: list[str], *, wanted: bool = True) -> Callable[[], bool]:
    def begin() -> bool:
        begun.append(name)
        return wanted

    return begin


def test_concurrent_turns_are_bounded_and_in_order_of_request() -> None:
    turns, begun = Turns(2), list[str]()
    for name in "abcde":
        turns.request(name, beginning(name, begun))
    assert begun == ["a", "b"]
    turns.release()
    assert begun == ["a", "b", "c"]
    turns.release()
    turns.release()
    assert begun == ["a", "b", "c", "d", "e"]
    turns.release()
    turns.release()
    turns.request("f", beginning("f", begun))
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
    for name in asked:
        turns.request(name, beginning(name, begun))
    for _ in had:
        turns.release()
    assert "".join(begun) == had


def test_a_turn_that_is_no_longer_needed_passes_to_the_next() -> None:
    turns, begun = Turns(1), list[str]()
    turns.request("a", beginning("a", begun))
    turns.request("b", beginning("b", begun, wanted=False))
    turns.request("c", beginning("c", begun))
    turns.release()
    assert begun == ["a", "b", "c"]
    turns.request("d", beginning("d", begun))
    assert begun == ["a", "b", "c"]


def test_shares_take_turns() -> None:
    turns, begun = Turns(1), list[str]()
    for name in ("a1", "a2", "a3", "a4", "b1"):
        turns.request(name, beginning(name, begun), name[0])
    for _ in range(4):
        turns.release()
    assert begun == ["a1", "a2", "b1", "a3", "a4"]
