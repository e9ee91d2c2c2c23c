"""Things of many owners that a door remembers for a while, the oldest forgotten first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from mtl.shares import Uses, default_share

T = TypeVar("T")


class Remembered(Generic[T]):
    """At most `total` things, and of each owner at most a quarter of that: an owner that has more loses its own oldest
    one, and no other owner's.
    """

    def __init__(self, total: int) -> None:
        self._total = total
        self._share = default_share(total)
        self._things: dict[str, tuple[str, T]] = {}
        self._uses = Uses()

    def __len__(self) -> int:
        return len(self._things)

    def __iter__(self) -> Iterator[str]:
        """The keys, the oldest first."""
        return iter(self._things)

    def get(self, key: str) -> T | None:
        """The thing of this key."""
        entry = self._things.get(key)
        return None if entry is None else entry[1]

    def add(self, key: str, owner: str, thing: T) -> list[T]:
        """Remember a thing, as the newest. Returns those that were forgotten for it."""
        self.pop(key)
        self._things[key] = owner, thing
        self._uses.add(owner)
        if self._uses.of(owner) > self._share:
            oldest = next(each for each, (known, _) in self._things.items() if known == owner)
        elif len(self._things) > self._total:
            oldest = next(iter(self._things))
        else:
            return []
        forgotten = self.pop(oldest)
        return [] if forgotten is None else [forgotten]

    def pop(self, key: str) -> T | None:
        """Forget a thing; returns it."""
        entry = self._things.pop(key, None)
        if entry is None:
            return None
        self._uses.remove(entry[0])
        return entry[1]
