"""Keys in order, for answers that come in pages (PROTOCOL.md 2.4): the cost of a page does not grow with the number of
all keys.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from itertools import compress
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
        wanted: Callable[[list[K]], Sequence[bool]],
        scanned: int = MAX_PAGE_SCANNED,
        beginnings: Sequence[str] = ("",),
    ) -> Page[K]:
        """The first MAX_PAGE keys that begin with `prefix` and are `wanted`. `after` is a key without its first member:
        the page begins above it. `wanted` gets at most `scanned` keys, and may judge only the first ones. So a page may
        have few keys, or none, and not be the last one.

        The member after the prefix begins with one of the `beginnings`, which are sorted, and none of which begins with
        another one. Other keys cost nothing.
        """
        keys = self._in_order()
        least = 0 if after is None else bisect_right(keys, (prefix[0], *after))
        block: list[K] = []
        for beginning in beginnings:
            begin, end = _range(keys, prefix, beginning)
            begin = max(begin, least)
            block += keys[begin : min(end, begin + scanned + 1 - len(block))]
            if len(block) > scanned:
                break
        judged = wanted(block[:scanned])
        more, block = len(block) > len(judged), block[: len(judged)]
        chosen = list(compress(block, judged))
        if len(chosen) > MAX_PAGE:
            return Page(chosen[:MAX_PAGE], chosen[MAX_PAGE - 1])
        return Page(chosen, block[-1] if more else None)

    def between(self, first: Key, end: Key) -> list[K]:
        """The keys from `first` on that are below `end`."""
        keys = self._in_order()
        return keys[bisect_left(keys, first) : bisect_left(keys, end)]

    def _in_order(self) -> list[K]:
        if not self._sorted:
            self._keys.sort()
            self._sorted = True
        return self._keys


def _range(keys: Sequence[Key], prefix: Key, beginning: str) -> tuple[int, int]:
    """The places of the keys that begin with `prefix`, and the next member of which begins with `beginning`."""
    at, length = len(prefix), len(beginning)
    first = (*prefix, beginning) if beginning else prefix

    def cut(key: Key) -> Key:
        return (*key[:at], key[at][:length]) if beginning else key[:at]

    return bisect_left(keys, first), bisect_right(keys, first, key=cut)
