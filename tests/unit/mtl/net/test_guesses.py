from __future__ import annotations

from mtl.net.guesses import Guesses


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_guesses_of_a_source_are_bounded_per_period() -> None:
    clock = Clock()
    guesses = Guesses(clock, 60.0, 100)
    for _ in range(3):
        assert not guesses.reached("here", 3)
        guesses.wrong("here")
        clock.now += 10.0
    assert guesses.reached("here", 3)
    assert not guesses.reached("there", 1)
    clock.now += 30.0
    assert not guesses.reached("here", 1), "the period begins with the first one"


def test_a_guess_counts_for_all_its_sources() -> None:
    guesses = Guesses(Clock(), 60.0, 100)
    for number in range(5):
        guesses.wrong(("here", f"user {number}"), ("here", None))
    assert guesses.reached(("here", None), 5)
    assert not guesses.reached(("here", "user 1"), 2)


def test_the_least_recently_changed_count_is_dropped() -> None:
    guesses = Guesses(Clock(), 60.0, 3)
    for source in "abcd":
        guesses.wrong(source, "all")
    assert [guesses.reached(source, 1) for source in "abcd"] == [False, False, True, True]
    assert guesses.reached("all", 4)
