"""Logs that no record names: those that the broker itself left behind, and the treatment of the others.

A log is removed only in three cases: a record `dropped` names it (saved in the transaction that removed its own
record); its name says that it was being made or removed; it has no contents and no records are missing. A damaged
or lost record is restored from the manifest of its log. Every other log is moved to `lost+found/` and reported.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from mtl.errors import StorageError
from mtl.log.extent import Extent, extent
from mtl.log.files import Disk, failure
from mtl.log.log import GOING, MAKING, delete_log
from mtl.storage.keys import directory_of
from mtl.storage.records import (
    AnyRecord,
    DroppedRecord,
    RecordDamage,
    ResourceRecord,
    StageRecord,
    decode_owner,
)
from mtl.storage.unreadable import Unreadable

log = logging.getLogger("mtl.broker")

LOST_FOUND = "lost+found"
_KINDS: dict[str, type[ResourceRecord | StageRecord]] = {"resources": ResourceRecord, "stages": StageRecord}

Owner = ResourceRecord | StageRecord


class Orphan(NamedTuple):
    """A log, or the logs of a stage, in the directory `place`: the owner in a manifest, and the extent of each log."""

    place: str
    owner: Owner | None
    logs: tuple[tuple[str, Extent], ...]

    @property
    def is_empty(self) -> bool:
        """Whether it has no contents."""
        return all(extent.is_empty for _, extent in self.logs)

    def __str__(self) -> str:
        if isinstance(self.owner, ResourceRecord):
            former = f"resource {self.owner.name!r} of virtual host {self.owner.vhost!r}"
        elif isinstance(self.owner, StageRecord):
            former = f"a stage of version {self.owner.version} of {self.owner.application!r}"
        else:
            former = "not known, since its manifest cannot be read"
        return f"it was {former}, {_contents(self.logs)}"


def _contents(logs: Sequence[tuple[str, Extent]]) -> str:
    ranges = [f"contents {x.first} to {x.end - 1}" for _, x in logs if x.end > x.first]
    damages = [x.damage for _, x in logs if x.damage is not None]
    return ", ".join([*(ranges or ["without contents"]), *damages])


def may_own(owner: bytes, key: str) -> bool:
    """Whether the owner in a manifest can have a log at `key`. True for an owner that cannot be decoded."""
    try:
        place = directory_of(decode_owner(owner))
    except msgspec.MsgspecError:
        return True
    return key == place or key.startswith(f"{place}/")


def read_orphan(disk: Disk, directory: str, place: str, kind: str | None = None) -> Orphan:
    """The log or logs in a place below the data directory. Raises `StorageFailed`."""
    kind, path = kind or place.split("/")[0], f"{directory}/{place}"
    try:
        parts = [f"{path}/{name}" for name in disk.list_dir(path)] if kind == "stages" else [path]
    except OSError as error:
        raise failure(error, f"looking at {path}") from error
    logs = tuple((part, extent(disk, part)) for part in parts if not part.endswith((MAKING, GOING)))
    owners = (_owner(extent, _KINDS[kind]) for _, extent in logs)
    return Orphan(place, next((x for x in owners if x is not None), None), logs)


def _owner(extent: Extent, kind: type[Owner]) -> Owner | None:
    if extent.manifest is None:
        return None
    try:
        owner = decode_owner(extent.manifest.owner)
    except msgspec.MsgspecError:
        return None
    if isinstance(owner, ResourceRecord):
        owner = msgspec.structs.replace(owner, earliest=extent.manifest.earliest)
    return owner if isinstance(owner, kind) else None


class Orphans:
    """Treats the logs below one data directory that no record names."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory

    def settle(
        self,
        records: Sequence[AnyRecord],
        damages: Sequence[RecordDamage],
        removed: Callable[[str], None],
    ) -> tuple[list[Owner], list[str]]:
        """Returns the records that were restored from manifests, and the kinds of which no record is missing any
        more, for the caller to save. `removed` is called with each place that is gone. Work that fails is left to
        the next start.
        """
        unreadable = Unreadable(damages)
        doubtful = {kind for kind in _KINDS.values() if any(d.kind in {kind.kind, None} for d in damages)}
        known = {directory_of(r) for r in records if isinstance(r, ResourceRecord | StageRecord)}
        keys = {(r.kind, r.key) for r in records}
        dropped = {r.place for r in records if isinstance(r, DroppedRecord)}
        rebuilt: list[Owner] = []
        whole = set(_KINDS.values())
        orphans = [
            x for x in self._orphans(known, dropped, removed) if not self._remove_unfinished(x, doubtful)
        ]
        for place in dropped:
            if not self._disk.exists(f"{self._directory}/{place}"):
                removed(place)
        claims = Counter((x.owner.kind, x.owner.key) for x in orphans if x.owner is not None)
        for orphan in orphans:
            owner = orphan.owner
            if owner is not None and self._may_return(owner, keys, claims, unreadable, orphan.place):
                rebuilt.append(owner)
                log.warning("the record of %s was lost and is written again, for %s", orphan.place, orphan)
                continue
            whole.discard(_KINDS[orphan.place.split("/")[0]])
            self._move_to_lost(orphan)
        return rebuilt, [kind.kind for kind in whole]

    @staticmethod
    def _may_return(
        owner: Owner,
        keys: set[tuple[str, str]],
        claims: Counter[tuple[str, str]],
        unreadable: Unreadable,
        place: str,
    ) -> bool:
        key = (owner.kind, owner.key)
        lost = unreadable.reason(type(owner), owner.key) is not None
        return lost and directory_of(owner) == place and key not in keys and claims[key] == 1

    # --- removed logs ---------------------------------------------------------------------------------------

    def _orphans(
        self, known: set[str], dropped: set[str], removed: Callable[[str], None]
    ) -> Iterator[Orphan]:
        for kind in _KINDS:
            for name in self._disk.list_dir(f"{self._directory}/{kind}"):
                place = f"{kind}/{name}"
                if place in known:
                    continue
                try:
                    if place in dropped:
                        self.remove(place)
                        removed(place)
                    elif name.endswith((MAKING, GOING)):
                        self._clear(place)
                    else:
                        yield read_orphan(self._disk, self._directory, place)
                except StorageError as error:
                    log.warning("%s/%s stays until the next start: %s", self._directory, place, error)

    def _remove_unfinished(self, orphan: Orphan, doubtful: set[type[Owner]]) -> bool:
        """Whether the log was being made when the broker stopped; it is removed then."""
        if not orphan.is_empty or _KINDS[orphan.place.split("/")[0]] in doubtful:
            return False
        try:
            self.remove(orphan.place)
        except StorageError as error:
            log.warning("%s/%s stays until the next start: %s", self._directory, orphan.place, error)
        return True

    def remove(self, place: str) -> None:
        """Remove the log of a resource, or all those of a stage. Raises `StorageError`."""
        path = f"{self._directory}/{place}"
        if place.startswith("resources/"):
            delete_log(self._disk, path)
            return
        try:
            if not self._disk.exists(path):
                return
            for name in dict.fromkeys(_without_suffix(self._disk.list_dir(path))):
                delete_log(self._disk, f"{path}/{name}")
            self._disk.remove_dir(path)
            self._disk.fsync_dir(path.rpartition("/")[0])
        except OSError as error:
            raise failure(error, f"removing {path}") from error

    def _clear(self, place: str) -> None:
        path = f"{self._directory}/{place}"
        try:
            for name in self._disk.list_dir(path):
                self._disk.unlink(f"{path}/{name}")
            self._disk.remove_dir(path)
        except OSError as error:
            raise failure(error, f"removing {path}") from error

    # --- kept logs ------------------------------------------------------------------------------------------

    def _move_to_lost(self, orphan: Orphan) -> None:
        kind, _, name = orphan.place.partition("/")
        try:
            target = self.move(orphan.place, f"{kind.removesuffix('s')}-{name}")
        except OSError as error:
            log.warning("%s has no record and stays in its place: %s; %s", orphan.place, error, orphan)
            return
        log.warning(
            "%s has no record and was moved to %s; %s. `mtl recover %s` shows and restores it",
            orphan.place,
            target,
            orphan,
            self._directory,
        )

    def move(self, place: str, name: str) -> str:
        """Move a directory to `lost+found`, durably, under `name` or the next free name. Returns its new place."""
        lost = f"{self._directory}/{LOST_FOUND}"
        if not self._disk.exists(lost):
            self._disk.make_dir(lost)
            self._disk.fsync_dir(self._directory)
        names = (name, *(f"{name}-{n}" for n in range(2, 1_000_000)))
        free = next(x for x in names if not self._disk.exists(f"{lost}/{x}"))
        source = f"{self._directory}/{place}"
        self._disk.rename(source, f"{lost}/{free}")
        self._disk.fsync_dir(lost)
        self._disk.fsync_dir(source.rpartition("/")[0])
        return f"{LOST_FOUND}/{free}"


def _without_suffix(names: Iterable[str]) -> Iterator[str]:
    return (name.removesuffix(MAKING).removesuffix(GOING) for name in names)
