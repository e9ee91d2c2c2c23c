from __future__ import annotations

import pytest

from mtl.doors.mbws.windows import Outgoing
from mtl.errors import Malformed


def sent(*entries: str, window: int = 10) -> Outgoing[str]:
    outgoing: Outgoing[str] = Outgoing(window)
    for entry in entries:
        outgoing.send(entry)
    return outgoing


@pytest.mark.requirement("MBWS-17")
def test_the_first_number_is_1() -> None:
    outgoing = sent()
    assert outgoing.bounds == (1, 0)
    outgoing.send("a")
    assert outgoing.bounds == (1, 1)
    assert outgoing.sent == 1


@pytest.mark.requirement("MBWS-19", "MBWS-20")
def test_an_acknowledgement_frees_all_messages_up_to_its_number() -> None:
    outgoing = sent("a", "b", "c")
    assert outgoing.acknowledged(2) == ["a", "b"]
    assert outgoing.bounds == (3, 3)
    assert outgoing.acknowledged(2) == outgoing.acknowledged(0) == []
    assert outgoing.acknowledged(3) == ["c"]
    assert outgoing.bounds == (4, 3)
    with pytest.raises(Malformed, match="3 is the last"):
        outgoing.acknowledged(4)


def test_outstanding_messages_are_limited_by_the_window() -> None:
    outgoing = sent("a", "b", window=2)
    assert not outgoing.room
    outgoing.acknowledged(1)
    assert outgoing.room


@pytest.mark.requirement("MBWS-27")
def test_sending_resumes_behind_a_retained_or_the_last_message() -> None:
    outgoing = sent("a", "b", "c")
    outgoing.acknowledged(1)
    assert [outgoing.can_resume_after(n) for n in range(5)] == [False, True, True, True, False]
    assert outgoing.rewind(2) == ["c"]
    assert outgoing.bounds == (3, 2)
    outgoing.send("c again")
    assert outgoing.sent == 3
    assert outgoing.rewind(3) == []
