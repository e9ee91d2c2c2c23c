"""Collects the single contents of a packed writer into packs, in the loop.

A pack is published when it is full, when the next content is for another resource, and at the latest after LINGER_S.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mtl.client.handover import Item
from mtl.client.limits import LINGER_S, PACK_TARGET, PACK_TARGET_CONTENTS
from mtl.client.loop import Loop, Timer
from mtl.limits import MAX_PACK_CONTENTS
from mtl.wire.commands import packed_properties
from mtl.wire.fields import Buffer
from mtl.wire.packs import encode_pack

_MOST = min(PACK_TARGET_CONTENTS, MAX_PACK_CONTENTS)

Publish = Callable[[str, bytes, Buffer, int, int], None]
"""Publishes to a resource: properties, body, number of contents, and their octets in the window."""


class Packing:
    """See the module. `due` is called when a pack that is not full is to be published."""

    def __init__(self, loop: Loop, publish: Publish, due: Callable[[], None]) -> None:
        self._loop = loop
        self._publish = publish
        self._due = due
        self._items: list[Item] = []
        self._octets = 0
        self._timer: Timer | None = None

    @property
    def open(self) -> bool:
        """Whether there is a pack that is not full; `due` will be called for it."""
        return bool(self._items)

    def add(self, items: Iterable[Item], max_pack: int) -> None:
        """Add contents, in order; packs have at most `max_pack` octets. Raises `ContentTooLarge` if a content was
        accepted under the larger limit of an earlier lease.
        """
        most = min(PACK_TARGET, max_pack)
        for item in items:
            octets = len(item.body) + len(item.properties)
            if self._items and (
                item.whole
                or item.resource != self._items[0].resource
                or self._octets + octets > most
                or len(self._items) >= _MOST
            ):
                self.finish(max_pack)
            if item.whole:
                self._publish(item.resource, item.properties, item.body, item.count, item.size)
            else:
                self._items.append(item)
                self._octets += octets
        if self._items and self._timer is None:
            self._timer = self._loop.after(LINGER_S, self._linger_over)

    def finish(self, max_pack: int) -> None:
        """Publish the collected contents as one pack."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._items:
            return
        items, self._items, self._octets = self._items, [], 0
        pack = encode_pack([item.body for item in items], [item.properties for item in items], max_pack)
        size = sum([item.size for item in items])
        self._publish(items[0].resource, packed_properties(len(items)), pack, len(items), size)

    def _linger_over(self) -> None:
        self._timer = None
        self._due()
