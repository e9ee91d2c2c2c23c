"""The manifest of a log that is written to: kept true at every step (manifest.py says what it promises).

Methods raise OSError; the manifest is then as it was before, or as it was to be.
"""

from __future__ import annotations

import msgspec

from mtl.log.manifest import Epoch, Manifest, begun, run_id
from mtl.log.segment import SegmentHeader
from mtl.log.store import Store


class ManifestKeeper:
    """`run`: the token of this run of the broker, whose epoch begins with the first contents; None begins none."""

    def __init__(self, store: Store, manifest: Manifest, run: str | None) -> None:
        self.manifest = manifest
        self._store = store
        self._unsure = False
        """Whether a write has failed: the file says one thing or the other until the next write succeeds."""
        self._epoch = None if run is None else run_id(manifest.epochs, run)
        self._new_epoch: Epoch | None = None

    def note(self, **changes: object) -> None:
        """Write these members, unless the manifest has them already."""
        manifest = msgspec.structs.replace(self.manifest, **changes)
        if manifest != self.manifest or self._unsure:
            self._unsure = True
            self._store.write_manifest(manifest)
            self._unsure = False
            self.manifest = manifest

    def announce(self, newest: int, salt: int, first: int) -> None:
        """Contents from `first` on are about to be in the segment at `newest`, which has this salt."""
        epochs = self.manifest.epochs
        if self._epoch is not None and not (
            epochs and epochs[-1].id == self._epoch and epochs[-1].first <= first
        ):
            self._new_epoch = Epoch(first, self._epoch)
            epochs = begun(epochs, self._new_epoch)
        self.note(newest=newest, salt=salt, end=max(newest, self.manifest.end), epochs=epochs)

    def take_epoch(self) -> Epoch | None:
        """The epoch that began with what was announced, once."""
        epoch, self._new_epoch = self._new_epoch, None
        return epoch

    def before_replacing(self, base: int) -> None:
        """Another segment is about to take the place of the empty one at `base`."""
        if base == self.manifest.newest:
            self.note(salt=None)

    def before_cutting(self, left: list[int], sequence: int) -> None:
        """Contents from `sequence` on are about to be taken back; of the segments those at `left` stay."""
        newest, salt = self.manifest.newest, self.manifest.salt
        if not left:
            newest, salt = min(newest, sequence), None
        elif newest > left[-1]:
            newest = left[-1]
            salt = self._store.header(newest).salt
        self.note(newest=newest, salt=salt, end=min(self.manifest.end, sequence))

    def lacks(self, end: int) -> bool:
        """Whether it does not say yet that the log ends at `end`, or whose its newest segment is."""
        return self.manifest.end < end or self.manifest.salt is None

    def record_end(self, end: int, active: SegmentHeader | None) -> None:
        """The log ends at `end`, durably; `active` is the segment that is appended to."""
        salt = self.manifest.salt
        if active is not None and active.base == self.manifest.newest:
            salt = active.salt
        self.note(end=end, salt=salt)
