"""Shares: the part of a total that one user may have, and how much each user has. Pure.

The broker and the doors bound everything that their users share. A total bounds the memory; a share bounds each user,
so that no user fills the total for the others.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

SHARE: Final = 4
"""A user's default share is one part of this number of the total: no few users can take all of it."""

RESERVE: Final = 4
"""No configured share exceeds the total less one part of this number: the rest is for the other users."""


def default_share(total: int) -> int:
    """The share of a user that the configuration does not mention; at least 1."""
    return max(1, total // SHARE)


def highest_share(total: int) -> int:
    """The highest share that a user may have; at least 1."""
    return max(1, total - total // RESERVE)


class Uses:
    """The uses of one quantity, in all and by owner."""

    def __init__(self) -> None:
        self._of_owner: Counter[str] = Counter()
        self.used = 0
        """The uses of all owners together."""

    def of(self, owner: str) -> int:
        """The uses of one owner."""
        return self._of_owner[owner]

    def add(self, owner: str, amount: int = 1) -> None:
        """Count further uses."""
        self._of_owner[owner] += amount
        self.used += amount

    def remove(self, owner: str, amount: int = 1) -> None:
        """The uses have ended."""
        self._of_owner[owner] -= amount
        self.used -= amount
        assert self._of_owner[owner] >= 0, "ended twice"
        if not self._of_owner[owner]:
            del self._of_owner[owner]
