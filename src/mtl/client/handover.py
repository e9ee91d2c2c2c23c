"""Hands contents from the application's threads to the loop: a list whose end one assignment extends.

An item is published when its predecessor's `next` refers to it, and not before. Its number and the totals follow from
the predecessor. So a call that is interrupted (`mtl.client.notice`) has published all of its content or nothing: no
number is left out or used twice, and no lock is needed between the two sides.

    taken by the loop ──► last taken ──next──► item ──next──► item (the end)
"""

from __future__ import annotations

from mtl.wire.fields import Buffer


class Item:
    """Contents first..last, which are published as one. `size` is their part of the window in octets; `octets` is the
    size of all contents up to these. `whole`: not to be packed with others.
    """

    __slots__ = ("body", "first", "last", "next", "octets", "properties", "resource", "size", "whole")

    def __init__(
        self,
        before: Item | None,
        resource: str,
        properties: bytes,
        body: Buffer,
        count: int,
        size: int,
        whole: bool,
    ) -> None:
        self.resource = resource
        self.properties = properties
        self.body = body
        self.size = size
        self.whole = whole
        self.next: Item | None = None
        if before is None:
            self.first = self.last = count
            self.octets = size
        else:
            self.first = before.last + 1
            self.last = before.last + count
            self.octets = before.octets + size

    @property
    def count(self) -> int:
        """The number of contents."""
        return self.last - self.first + 1


class Handover:
    """See the module. `publish` is for one thread at a time, and so is `take`."""

    __slots__ = ("_end", "_taken")

    def __init__(self, last: int) -> None:
        """Numbers begin after `last`."""
        self._end = self._taken = Item(None, "", b"", b"", last, 0, False)

    @property
    def end(self) -> Item:
        """The last item; before the first one, an item without contents whose `last` is the number before."""
        end = self._end
        while end.next is not None:  # once: after an interrupted `publish` the end is behind
            end = end.next
        self._end = end
        return end

    def publish(
        self, resource: str, properties: bytes, body: Buffer, count: int, size: int, *, whole: bool = True
    ) -> int:
        """Publish contents as one item. Returns the number of the last."""
        end = self.end
        item = Item(end, resource, properties, body, count, size, whole)
        end.next = item
        return item.last

    @property
    def waits(self) -> bool:
        """Whether there are items to take."""
        return self._taken.next is not None

    def take(self, most: int) -> list[Item]:
        """The next items, in order, at most the given number. In the loop."""
        items: list[Item] = []
        item = self._taken
        while len(items) < most and item.next is not None:
            item = item.next
            items.append(item)
        self._taken = item
        return items
