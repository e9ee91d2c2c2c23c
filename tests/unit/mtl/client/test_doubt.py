from __future__ import annotations

import pytest

from mtl.client.doubt import Doubt
from mtl.wire import control


class At:
    def __init__(self) -> None:
        self.now = 100.0
        self.doubt = Doubt(lambda: self.now)

    def exists(self) -> bool:
        return self.doubt.exists


@pytest.fixture
def at() -> At:
    return At()


LEASE = control.DataLease(port=1, lease="l", binding=True, heartbeat=5.0)


def test_a_silence_of_more_than_two_intervals_is_a_doubt_until_the_broker_answers(at: At) -> None:
    at.doubt.bound(LEASE)
    at.now += 10.0
    assert not at.exists()
    assert not at.doubt.sent(at.now)
    at.now += 10.5
    assert at.exists()
    assert at.doubt.sent(at.now)
    at.doubt.asked(7)
    assert at.exists()
    assert not at.doubt.sent(at.now)
    assert not at.doubt.ends_with(6)  # of a Lease that was sent before the silence
    assert at.exists()
    assert at.doubt.ends_with(7)
    assert not at.exists()
    assert not at.doubt.ends_with(8)


def test_another_binding_ends_a_doubt(at: At) -> None:
    at.doubt.bound(LEASE)
    at.now += 11.0
    assert at.exists()
    at.doubt.asked(7)
    at.doubt.bound(LEASE)
    assert not at.exists()


@pytest.mark.parametrize(
    "lease",
    [
        control.DataLease(port=1, lease="l"),
        control.DataLease(port=1, lease="l", binding=True),
        control.DataLease(port=1, lease="l", binding=True, heartbeat=0.0),
        control.DataLease(port=1, lease="l", heartbeat=5.0),
    ],
)
def test_without_an_answer_that_would_decide_there_is_no_doubt(at: At, lease: control.DataLease) -> None:
    at.doubt.bound(lease)
    at.now += 1_000.0
    assert not at.exists()
