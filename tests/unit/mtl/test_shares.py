from __future__ import annotations

import pytest

from mtl.shares import Uses, default_share, highest_share


@pytest.mark.parametrize(("total", "share", "highest"), [(1, 1, 1), (3, 1, 3), (4, 1, 3), (1000, 250, 750)])
def test_shares_leave_a_reserve_of_every_total_that_can_be_divided(
    total: int, share: int, highest: int
) -> None:
    assert (default_share(total), highest_share(total)) == (share, highest)


def test_uses_are_counted_in_all_and_by_owner() -> None:
    uses = Uses()
    uses.add("alice", 2)
    uses.add("bob")
    assert (uses.used, uses.of("alice"), uses.of("bob"), uses.of("carol")) == (3, 2, 1, 0)
    uses.remove("alice", 2)
    assert (uses.used, uses.of("alice")) == (1, 0)
