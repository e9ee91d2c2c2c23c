"""Records that cannot be read. A request that depends on one is refused, instead of being served without the record.

A group with a lost position must not begin at the start; a commit with a lost record must not be repeated. So when the
broker finds no record, it checks here whether there may be an unreadable one.
"""

from __future__ import annotations

from collections.abc import Iterable

from mtl.errors import Refused
from mtl.storage.records import AnyRecord, RecordDamage
from mtl.wire.control import STORAGE


class Unreadable:
    """The keys that are unknown because of `damages`: single keys, or all keys of a kind without a record."""

    def __init__(self, damages: Iterable[RecordDamage] = ()) -> None:
        self._keys: dict[tuple[str, str], str] = {}
        self._kinds: dict[str | None, str] = {}
        for damage in damages:
            if damage.kind is not None and damage.key is not None:
                self._keys[damage.kind, damage.key] = damage.reason
            else:
                self._kinds.setdefault(damage.kind, damage.reason)

    def reason(self, kind: type[AnyRecord], key: str) -> str | None:
        """Why the record with this key is not known; None when there is certainly none."""
        name = kind.kind
        return self._keys.get((name, key)) or self._kinds.get(name) or self._kinds.get(None)

    def has_key(self, kind: type[AnyRecord], key: str) -> bool:
        """Whether exactly this record is damaged, so that it can be forgotten by its key."""
        return (kind.kind, key) in self._keys

    def check(self, kind: type[AnyRecord], key: str, subject: str) -> None:
        """Raises `Refused` 503 with the reason when there may be a record of this key. Call it only if no record
        was found.
        """
        reason = self.reason(kind, key)
        if reason is not None:
            raise Refused(
                503,
                STORAGE,
                f"the record of {subject} cannot be read ({reason}); `mtl recover` on the broker's data directory "
                "shows and resolves it",
            )

    def resolved(self, kind: type[AnyRecord], key: str) -> None:
        """The record was forgotten on purpose."""
        self._keys.pop((kind.kind, key), None)
