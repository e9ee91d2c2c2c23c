"""The manifest of a log that is being written: correct at every step (manifest.py lists its guarantees).

Methods raise OSError; the file then has the old manifest or the new one.
"""

from __future__ import annotations

import msgspec

from mtl.log.manifest import Epoch, Manifest, run_id, with_epoch
from mtl.log.segment import SegmentHeader
from mtl.log.stamps import above, before, with_setback
from mtl.log.store import Store


class ManifestKeeper:
    """`run`: the token of this run of the broker, whose epoch begins with the first contents; None begins none."""

    def __init__(self, store: Store, manifest: Manifest, run: str | None) -> None:
        self.manifest = manifest
        self._store = store
        self._unsure = False
        """Whether a write has failed: until the next one succeeds, the file has the old manifest or the new one."""
        self._epoch = None if run is None else run_id(manifest.epochs, run)
        self._new_epoch: Epoch | None = None

    def update(self, **changes: object) -> None:
        """Write these members, unless the manifest has them already."""
        manifest = msgspec.structs.replace(self.manifest, **changes)
        if manifest != self.manifest or self._unsure:
            self._unsure = True
            self._store.write_manifest(manifest)
            self._unsure = False
            self.manifest = manifest

    def announce(self, newest: int, salt: int, first: int) -> None:
        """Contents from `first` on are about to be written to the segment at `newest`, which has this salt."""
        epochs = self.manifest.epochs
        if self._epoch is not None and not (
            epochs and epochs[-1].id == self._epoch and epochs[-1].first <= first
        ):
            self._new_epoch = Epoch(first, self._epoch)
            epochs = with_epoch(epochs, self._new_epoch)
        self.update(newest=newest, salt=salt, end=max(newest, self.manifest.end), epochs=epochs)

    def set_back(self, first: int, time: int) -> None:
        """The stamps of contents from `first` on begin again at `time`, below earlier ones."""
        self.update(setbacks=with_setback(self.manifest.setbacks, first, time))

    def trim(self, earliest: int) -> None:
        """Contents below `earliest` are about to be removed."""
        earliest = max(earliest, self.manifest.earliest)
        self.update(earliest=earliest, setbacks=above(self.manifest.setbacks, earliest))

    def pop_epoch(self) -> Epoch | None:
        """The epoch that began with the announced contents; it is returned once."""
        epoch, self._new_epoch = self._new_epoch, None
        return epoch

    def before_replacing(self, base: int) -> None:
        """Another segment is about to replace the empty one at `base`."""
        if base == self.manifest.newest:
            self.update(salt=None)

    def before_cutting(self, left: list[int], sequence: int) -> None:
        """Contents from `sequence` on are about to be removed; the segments at `left` stay."""
        newest, salt = self.manifest.newest, self.manifest.salt
        if not left:
            newest, salt = min(newest, sequence), None
        elif newest > left[-1]:
            newest = left[-1]
            salt = self._store.header(newest).salt
        setbacks = before(self.manifest.setbacks, sequence + 1)
        self.update(newest=newest, salt=salt, end=min(self.manifest.end, sequence), setbacks=setbacks)

    def lacks(self, end: int) -> bool:
        """Whether the manifest lacks the log's end `end`, or the salt of its newest segment."""
        return self.manifest.end < end or self.manifest.salt is None

    def record_end(self, end: int, active: SegmentHeader | None) -> None:
        """Record that the log ends durably at `end`; `active` is the segment that is appended to."""
        salt = self.manifest.salt
        if active is not None and active.base == self.manifest.newest:
            salt = active.salt
        self.update(end=end, salt=salt)
