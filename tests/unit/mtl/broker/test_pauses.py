"""Who is paused, and until when."""

from __future__ import annotations

from types import SimpleNamespace

from mtl import limits
from mtl.broker import actions as a
from mtl.broker.outbox import Outbox
from mtl.broker.pauses import Pauses


def test_a_pause_ends_by_time_or_by_a_frame() -> None:
    outbox = Outbox()
    outbox.now = a.Now(10.0, 0)
    pauses: Pauses[SimpleNamespace] = Pauses(outbox)
    one, other = (SimpleNamespace(terms=SimpleNamespace(token=t)) for t in "ab")
    pauses.pause(one)
    outbox.now = a.Now(10.01, 0)
    pauses.pause(other)
    assert one in pauses
    assert pauses.next == 10.0 + limits.BLOCKED_RETRY_S
    assert pauses.end(other)
    assert not pauses.end(other)
    assert pauses.over() == []
    outbox.now = a.Now(11.0, 0)
    assert pauses.over() == [one]
    assert one not in pauses
    assert pauses.next is None
