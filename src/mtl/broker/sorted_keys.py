"""Keys in order, for answers that come in pages (PROTOCOL.md 2.4): the cost of a page does not grow with the number of
all keys.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from itertools import compress, islice
from typing import Generic, NamedTuple, TypeVar

from mtl.broker.limits import MAX_PAGE, MAX_PAGE_SCANNED

Key = tuple[str, ...]
K = TypeVar("K", bound=Key)


class Page(NamedTuple, Generic[K]):
    """The keys of one page, in order. `last` is the key after which the next page begins; None on the last page."""

    keys: list[K]
    last: K | None


class SortedKeys(Generic[K]):
    """A set of keys in ascending order. Keys that are added before the first use are sorted together."""

    def __init__(self, keys: Iterable[K] = ()) -> None:
        self._keys = list(keys)
        self._sorted = False

    def add(self, key: K) -> None:
        """Add a key that is not in the set."""
        if self._sorted:
            insort(self._keys, key)
        else:
            self._keys.append(key)

    def discard(self, key: K) -> None:
        """Remove a key, if it is in the set."""
        keys = self._in_order()
        at = bisect_left(keys, key)
        if at < len(keys) and keys[at] == key:
            del keys[at]

    def page(
        self,
        prefix: Key,
        after: Sequence[str] | None,
        wanted: Callable[[list[K]], Iterable[bool]],
        scanned: int = MAX_PAGE_SCANNED,
    ) -> Page[K]:
        """The first MAX_PAGE keys that begin with `prefix` and are `wanted`. `after` is a key without its first member:
        the page begins above it. `wanted` gets at most `scanned` keys. So a page may have few keys, or none, and not be
        the last one.
        """
        keys = self._in_order()
        begin = bisect_left(keys, prefix)  # a prefix sorts before all keys that begin with it
        if after is not None:
            begin = max(begin, bisect_right(keys, (prefix[0], *after)))
        block = list(islice(keys, begin, begin + scanned + 1))
        block = block[: _count_with(prefix, block)]
        more, block = len(block) > scanned, block[:scanned]
        found = list(compress(block, wanted(block)))
        if len(found) > MAX_PAGE:
            return Page(found[:MAX_PAGE], found[MAX_PAGE - 1])
        return Page(found, block[-1] if more else None)

    def _in_order(self) -> list[K]:
        if not self._sorted:
            self._keys.sort()
            self._sorted = True
        return self._keys


def _count_with(prefix: Key, keys: Sequence[Key]) -> int:
    return bisect_right(keys, prefix, key=lambda key: key[: len(prefix)])
