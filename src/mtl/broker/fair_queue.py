"""A queue in which shares, such as users or addresses, take turns: an item of one waits for one of each other share, at
most, and not for all of theirs.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items in the order of their shares' turns; those of one share stay in order."""

    def __init__(self) -> None:
        self._items: OrderedDict[Hashable, deque[T]] = OrderedDict()  # the next turn's share first
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def of(self, share: Hashable) -> int:
        """The number of waiting items of one share."""
        return len(self._items.get(share, ()))

    def append(self, share: Hashable, item: T) -> None:
        """Append an item to those of its share."""
        self._items.setdefault(share, deque()).append(item)
        self._length += 1

    def pop(self) -> T:
        """Remove and return the first item of the share whose turn it is. Raises `StopIteration` without items."""
        share, items = next(iter(self._items.items()))
        item = items.popleft()
        self._length -= 1
        if items:
            self._items.move_to_end(share)
        else:
            del self._items[share]
        return item
