"""`mtl recover`: shows the unused logs and records of a damaged data directory, and restores them.

No broker may run on the directory meanwhile. Nothing is removed: replaced files are kept in `lost+found/` or next to
the new ones.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, Self

import msgspec

from mtl.errors import Damaged, OptionError
from mtl.log.files import Disk, RealDisk, failure
from mtl.log.log import open_log, rebuild_manifest
from mtl.log.manifest import MANIFEST
from mtl.log.store import Store
from mtl.storage.inspection import compare, inspect_records
from mtl.storage.keys import directory_of
from mtl.storage.orphans import LOST_FOUND, Orphan, Owner, read_orphan
from mtl.storage.records import (
    KINDS,
    AnyRecord,
    ApplicationRecord,
    PublishRecord,
    ResourceRecord,
    StageRecord,
    encode_owner,
)
from mtl.storage.salvage import open_records

KEPT_MANIFEST = "manifest.damaged"


class Item(NamedTuple):
    """A problem or an unused log: its name, a description, and the option of `mtl recover` for it (empty: none)."""

    what: str
    about: str
    option: str


class Recovery:
    """A data directory without a running broker. Raises `DirectoryInUse`, and `OptionError` for other directories."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self._directory = directory
        self._disk = disk or RealDisk()
        if not (directory / "resources").is_dir():
            raise OptionError(f"{directory} is not a data directory of a broker")
        self._lock = self._disk.lock(str(directory))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    # --- the state ------------------------------------------------------------------------------------------

    def items(self) -> list[Item]:
        """All problems and all unused logs and records, with the options for them."""
        inspection = inspect_records(self._directory)
        items = [Item(x.about, x.problem, self._option_for(x.about)) for x in inspection.findings]
        items += [Item(x.about, x.problem, "") for x in compare(self._directory, self._disk)]
        items += [Item(name, reason, "--manifests") for name, reason in self._without_manifest()]
        items += [Item(name, str(orphan), name) for name, orphan in self._lost()]
        items += [
            Item(f"{LOST_FOUND}/{path.name}", "damaged or replaced records, kept for inspection", "")
            for path in sorted((self._directory / LOST_FOUND).glob("broker.db-*"))
        ]
        return items

    def _option_for(self, about: str) -> str:
        kind, _, key = about.partition(" ")
        if about == "generation":
            return ""  # the next start of the broker restores it
        return f"--forget '{about}'" if key and kind in KINDS else "--accept-records"

    def _lost(self) -> list[tuple[str, Orphan]]:
        lost = self._directory / LOST_FOUND
        orphans = []
        for path in sorted(lost.iterdir()) if lost.is_dir() else ():
            kind = path.name.partition("-")[0]
            if kind in {"resource", "stage"}:
                orphans.append(
                    (
                        path.name,
                        read_orphan(
                            self._disk, str(self._directory), f"{LOST_FOUND}/{path.name}", f"{kind}s"
                        ),
                    )
                )
        return orphans

    def _logs(self) -> list[tuple[str, Owner]]:
        """Every existing log that a record names."""
        logs: list[tuple[str, Owner]] = []
        for record in inspect_records(self._directory).records:
            if isinstance(record, ResourceRecord):
                logs.append((directory_of(record), record))
            elif isinstance(record, StageRecord):
                logs += [(f"{directory_of(record)}/{n}", record) for n in range(len(record.incarnations))]
        return [(place, record) for place, record in logs if (self._directory / place).is_dir()]

    def _without_manifest(self) -> list[tuple[str, str]]:
        damaged = []
        for place, _ in self._logs():
            try:
                Store(self._disk, str(self._directory / place)).manifest()
            except Damaged as error:
                damaged.append((place, str(error)))
        return damaged

    # --- the repairs ----------------------------------------------------------------------------------------

    def accept(self) -> list[str]:
        """Accept the present records as complete: an older copy, salvaged records, or none. Missing records of
        resources are restored from the manifests of their logs. Returns a description of each change.
        """
        store = open_records(self._directory, accept=True)
        done = list(store.notes)
        with closing(store):
            rows = store.remove_keyless_rows()
            if rows:
                kept = self._save_rows(rows)
                done.append(f"{len(rows)} rows that are not records were moved to {kept}")
            store.complete(list(KINDS.keys() - {"state"}))
            records = store.load().records
            keys = {(r.kind, r.key) for r in records}
            places = {directory_of(r) for r in records if isinstance(r, ResourceRecord | StageRecord)}
            for orphan in self._unnamed(places):
                owner = orphan.owner
                if (
                    owner is not None
                    and (owner.kind, owner.key) not in keys
                    and directory_of(owner) == orphan.place
                ):
                    store.save((owner,), ())
                    keys.add((owner.kind, owner.key))
                    done.append(f"the record of {orphan.place} was created again: {orphan}")
        return [*done, "the present records count as complete from now on"]

    def _unnamed(self, places: set[str]) -> list[Orphan]:
        orphans = []
        for kind in ("resources", "stages"):
            for path in sorted((self._directory / kind).glob("*")):
                place = f"{kind}/{path.name}"
                if place not in places and not path.suffix:
                    orphan = read_orphan(self._disk, str(self._directory), place)
                    orphans += [] if orphan.is_empty else [orphan]
        return orphans

    def _save_rows(self, rows: list[tuple[object, ...]]) -> str:
        lost = self._directory / LOST_FOUND
        lost.mkdir(mode=0o700, exist_ok=True)
        path = next(p for n in range(1, 1_000_000) if not (p := lost / f"broker.db-rows-{n}.jsonl").exists())
        path.write_text("".join(json.dumps(list(map(repr, row))) + "\n" for row in rows), "utf-8")
        return f"{LOST_FOUND}/{path.name}"

    def forget(self, about: str) -> str:
        """Remove a damaged record; `about` is its kind and key. With the record of an interrupted commit the contents
        that it has already placed are removed, which no reader saw; its stages stay, to be committed again.
        """
        kind, _, key = about.partition(" ")
        damaged = [x.about for x in inspect_records(self._directory).findings]
        if about not in damaged or kind not in KINDS:
            raise OptionError(
                f"{about!r} is not a damaged record; `mtl recover {self._directory}` lists them"
            )
        with closing(open_records(self._directory)) as store:
            records = store.load().records
            if kind == PublishRecord.kind:
                self._undo(records, key)
                store.forget(ApplicationRecord.kind, key)
            store.forget(kind, key)
        return f"{about} is forgotten"

    def _undo(self, records: Sequence[AnyRecord], key: str) -> None:
        """Cut the resources of an application's last commit back to its beginning."""
        last = next((r for r in records if isinstance(r, ApplicationRecord) and r.key == key), None)
        for record in records:
            if last is None or not isinstance(record, ResourceRecord) or record.vhost != last.vhost:
                continue
            base, _ = last.published.get(record.name, (0, 0))
            if base:
                path = f"{self._directory}/{directory_of(record)}"
                reader, writer, _ = open_log(self._disk, path, now_us=0, earliest=record.earliest)
                if reader.next > base:
                    writer.truncate_to(base)
                reader.close()
                writer.close()

    def manifests(self) -> list[str]:
        """Make the manifests that are missing or damaged; a damaged one is kept as `manifest.damaged`."""
        done = []
        broken = dict(self._without_manifest())
        for place, record in self._logs():
            if place in broken:
                self._rebuild_manifest(place, encode_owner(record), getattr(record, "earliest", None))
                done.append(f"{place} has a manifest again")
        return done

    def _rebuild_manifest(self, place: str, owner: bytes, earliest: int | None) -> None:
        path = f"{self._directory}/{place}"
        try:
            if self._disk.exists(f"{path}/{MANIFEST}"):
                self._disk.rename(f"{path}/{MANIFEST}", f"{path}/{KEPT_MANIFEST}")
                self._disk.fsync_dir(path)
        except OSError as error:
            raise failure(error, f"keeping {path}/{MANIFEST}") from error
        rebuild_manifest(self._disk, path, owner, earliest)

    def restore_log(self, name: str, new_name: str | None, vhost: str | None) -> str:
        """Use a log of `lost+found` again, as resource `new_name` of `vhost`, or under its former name. Raises
        `OptionError` when there is no such log, when the name is taken, or when it is neither known nor given.
        """
        orphan = dict(self._lost()).get(name)
        if orphan is None:
            raise OptionError(
                f"there is no {LOST_FOUND}/{name}; `mtl recover {self._directory}` lists the logs"
            )
        owner = self._owner(name, orphan, new_name, vhost)
        with closing(open_records(self._directory)) as store:
            names = {(r.kind, r.key) for r in store.load().records}
            if (owner.kind, owner.key) in names:
                raise OptionError(
                    f"there is a {owner.kind} {owner.key} already; give this one another name with --as NAME"
                )
            if orphan.owner is None:
                self._rebuild_manifest(f"{LOST_FOUND}/{name}", encode_owner(owner), None)
            self._move_back(name, directory_of(owner))
            store.save((owner,), ())
        return f"{name} is {_owner_text(owner)} again, from the next start of the broker on: {orphan}"

    def _owner(self, name: str, orphan: Orphan, new_name: str | None, vhost: str | None) -> Owner:
        owner = orphan.owner
        if isinstance(owner, StageRecord):
            return owner
        if owner is None:
            if not name.startswith("resource-") or new_name is None:
                raise OptionError(
                    f"the former name of {name} is not known, since its manifest cannot be read; give a resource a new "
                    "name with --as NAME"
                )
            owner = ResourceRecord(vhost or "/", new_name, secrets.token_hex(16), secrets.token_hex(16))
        return msgspec.structs.replace(owner, name=new_name or owner.name, vhost=vhost or owner.vhost)

    def _move_back(self, name: str, place: str) -> None:
        target = f"{self._directory}/{place}"
        if self._disk.exists(target):
            raise OptionError(f"{target} already exists")
        try:
            self._disk.rename(f"{self._directory}/{LOST_FOUND}/{name}", target)
            self._disk.fsync_dir(target.rpartition("/")[0])
            self._disk.fsync_dir(f"{self._directory}/{LOST_FOUND}")
        except OSError as error:
            raise failure(error, f"bringing back {name}") from error


def _owner_text(owner: Owner) -> str:
    return (
        f"resource {owner.name!r} of {owner.vhost!r}"
        if isinstance(owner, ResourceRecord)
        else f"stage {owner.stage} of {owner.application!r}"
    )
