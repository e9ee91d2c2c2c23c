"""Octets of contents on their way from the broker to peers, for each owner of peers and in all.

A peer that reads slowly has contents in two places of the door: those that its subscription has prefetched, at most a
window, and those that were taken from there and wait for the peer. Neither can be given back to the broker. So the
windows of an owner become smaller the more it has, and above the owner's share the subscription that has waited longest
is ended. Its contents are still in the log.
"""

from __future__ import annotations

from typing import Final, Protocol

from mtl.shares import Uses

_PART: Final = 4
"""A window is at most one part of this number of what is left of the owner's share: later ones find room, too."""


class Windows:
    """The windows of subscriptions, in octets: from `smallest` to `largest`."""

    def __init__(self, share: int, smallest: int, largest: int) -> None:
        self._share = share
        self._smallest = smallest
        self._largest = largest
        self._uses = Uses()

    def take(self, owner: str) -> int:
        """The window of one more subscription."""
        left = self._share - self._uses.of(owner)
        window = min(self._largest, max(self._smallest, left // _PART))
        self._uses.add(owner, window)
        return window

    def free(self, owner: str, window: int) -> None:
        """The subscription has ended."""
        self._uses.remove(owner, window)


class SlowSubscription(Protocol):
    """A subscription whose peer may receive too slowly."""

    def end_slow(self) -> None:
        """End the subscription, or the connection of its peer."""


class Unsent:
    """The octets that wait for peers: `total` in all, `share` for each owner."""

    def __init__(self, total: int, share: int) -> None:
        self._total = total
        self._share = share
        self._uses = Uses()
        self._of_owner: dict[str, dict[SlowSubscription, int]] = {}
        """The subscriptions with octets, the one that has waited longest first."""

    @property
    def used(self) -> int:
        """The octets of all owners."""
        return self._uses.used

    def replace(self, subscription: SlowSubscription, owner: str, octets: int) -> None:
        """The subscription has taken these octets, and its former ones were sent. Above the owner's share its other
        subscriptions are ended, and above the total one of the owner with the most octets.
        """
        self._remove(subscription, owner)
        if not octets:
            return
        self._of_owner.setdefault(owner, {})[subscription] = octets
        self._uses.add(owner, octets)
        while self._uses.of(owner) > self._share and len(self._of_owner[owner]) > 1:
            self._end_longest(owner)
        while self._uses.used > self._total:
            self._end_longest(max(self._of_owner, key=self._uses.of))

    def _remove(self, subscription: SlowSubscription, owner: str) -> None:
        of_owner = self._of_owner.get(owner, {})
        octets = of_owner.pop(subscription, None)
        if octets is not None:
            self._uses.remove(owner, octets)
            if not of_owner:
                del self._of_owner[owner]

    def _end_longest(self, owner: str) -> None:
        subscription = next(iter(self._of_owner[owner]))
        self._remove(subscription, owner)
        subscription.end_slow()
