from __future__ import annotations

import pytest

from mtl.broker.fair_queue import FairQueue


def test_shares_take_turns_and_items_of_one_share_stay_in_order() -> None:
    queue: FairQueue[str] = FairQueue()
    for item in ("a1", "a2", "a3", "b1", "a4", "c1", "c2"):
        queue.append(item[0], item)
    assert (len(queue), queue.of("a"), queue.of("b"), queue.of("z")) == (7, 4, 1, 0)
    assert [queue.pop() for _ in range(4)] == ["a1", "b1", "c1", "a2"]
    queue.append("b", "b2")
    assert [queue.pop() for _ in range(len(queue))] == ["c2", "a3", "b2", "a4"]
    with pytest.raises(StopIteration):
        queue.pop()
