from __future__ import annotations

from mtl.protocol.backoff import Backoff, pause


def test_pauses_double_up_to_the_longest_until_an_attempt_succeeds() -> None:
    backoff = Backoff(0.5, 3.0)
    assert [backoff.failed() for _ in range(4)] == [0.5, 1.0, 2.0, 3.0]
    assert backoff.attempts == 4
    backoff.succeeded()
    assert backoff.failed() == 0.5


def test_any_number_of_attempts_has_a_pause() -> None:
    assert pause(0.1, 30.0, 1_000_000) == 30.0
