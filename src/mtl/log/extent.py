"""The range of contents of a log, read from its files without opening it: for logs that no record names."""

from __future__ import annotations

from typing import NamedTuple

from mtl.errors import Damaged, MtlError
from mtl.log.files import Disk, failure
from mtl.log.manifest import Manifest
from mtl.log.scanned import contents, scan_segment
from mtl.log.segment import segment_base, segment_name
from mtl.log.store import Store


class Extent(NamedTuple):
    """Contents [first, end) of a log, as far as its files can be read; `manifest` None: missing or damaged. `damage`:
    the problem with its newest segment, if there is one.
    """

    first: int
    end: int
    manifest: Manifest | None
    damage: str | None = None

    @property
    def is_empty(self) -> bool:
        """Whether the log has no contents, and has certainly lost none."""
        return (
            self.end <= self.first
            and self.damage is None
            and (self.manifest is None or self.manifest.end <= 1)
        )


def extent(disk: Disk, directory: str) -> Extent:
    """The extent of the log in a directory; without segments it is empty. StorageFailed when the disk fails."""
    store = Store(disk, directory)
    try:
        manifest = _manifest(store)  # before the sizes: a broker may write to the log meanwhile
        sizes = disk.sizes(directory)
        bases = [base for name in sizes if (base := segment_base(name)) is not None]
        first = max(manifest.earliest if manifest is not None else 1, bases[0] if bases else 1)
        if not bases:
            gone = None if manifest is None or manifest.end <= 1 else "its segments are missing"
            return Extent(first, first, manifest, gone)
        newest = bases[-1]
        try:
            header = store.header(newest)
            scanned = scan_segment(store, newest, header, sizes[segment_name(newest)])
        except MtlError as error:
            return Extent(first, newest, manifest, str(error))
        end = newest + scanned.index.contents
        damage = None
        if scanned.bad is not None and scanned.bad.offset < scanned.durable:
            damage = f"its last segment is damaged at octet {scanned.bad.offset}"
        elif manifest is not None and end < manifest.end:
            damage = contents(end, manifest.end, "are missing", at_least=True)
        return Extent(first, end, manifest, damage)
    except OSError as error:
        raise failure(error, f"looking at the log {directory}") from error


def _manifest(store: Store) -> Manifest | None:
    try:
        return store.manifest()
    except Damaged:
        return None
