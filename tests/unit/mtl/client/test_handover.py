from __future__ import annotations

from mtl.client.handover import Handover


def publish(handover: Handover, body: bytes, count: int = 1) -> int:
    return handover.publish("a", b"", body, count, len(body))


def test_items_are_taken_in_order_with_their_numbers_and_totals() -> None:
    handover = Handover(7)
    assert (handover.end.last, handover.waits) == (7, False)
    assert [publish(handover, b"x"), publish(handover, b"yyy", 3), publish(handover, b"z")] == [8, 11, 12]
    assert handover.waits
    first = handover.take(2)
    assert [(item.body, item.first, item.last, item.count, item.octets) for item in first] == [
        (b"x", 8, 8, 1, 1),
        (b"yyy", 9, 11, 3, 4),
    ]
    assert [item.body for item in handover.take(9)] == [b"z"]
    assert handover.take(9) == []
    assert handover.end.octets == 5


def test_an_interrupted_publish_counts_although_the_end_is_behind() -> None:
    handover = Handover(0)
    before = handover.end
    assert publish(handover, b"x") == 1
    handover._end = before  # as if it was interrupted after the assignment that publishes
    assert publish(handover, b"y") == 2
    assert [item.body for item in handover.take(9)] == [b"x", b"y"]
