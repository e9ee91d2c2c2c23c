"""Hypothetical damage to a log after a crash: it is reported or harmless, and no wrong contents are returned.

One file of one resource's log is damaged: a bit flips, or the file is truncated, removed, or exchanged for that of
another log. Contents recorded as durable are all returned afterwards, or reading them raises. Some of those behind may
be missing: a log cannot distinguish that from an unfinished group (mtl.log.recovery).
"""

from __future__ import annotations

from random import Random

from mtl.errors import StorageError
from mtl.log.store import Store
from mtl.storage.keys import log_key
from mtl.storage.records import ResourceRecord
from mtl.wire.packs import decode_pack, unpack
from tests.simulator.checks import Contents, interrupted_at, open_log_of
from tests.simulator.machine import ROOT, Machine, MemoryMachine
from tests.simulator.model import Tag, Violation
from tests.support.engines import chunks

_EXCHANGED = 0.3
"""The share of damages that exchange two files of two logs, if there are two."""


def imagine_damage(machine: Machine, contents: Contents) -> None:
    """`contents` are those that a broker would find on `machine`, which is unused. Only files can be damaged."""
    if isinstance(machine, MemoryMachine):
        return
    rng = Random(machine.world.seed * 1_000_003 + machine.world.steps)
    records = [
        r for r in machine.store.load().records if isinstance(r, ResourceRecord) and r.name in contents
    ]
    if not records:
        return
    record = rng.choice(records)
    base = interrupted_at(machine.store.load().records).get((record.vhost, record.name))
    directory = f"{ROOT}/{log_key(record)}"
    recorded = Store(machine.disk, directory).manifest().end
    state = machine.world.random.getstate()
    others = sorted({f"{ROOT}/{log_key(r)}" for r in records} - {directory})
    what = _damage(machine, rng, directory, others)
    machine.world.counts[f"damage: {what.partition(' ')[0]}"] += 1
    before = contents[record.name]
    found = _read(machine, record, base)
    machine.world.random.setstate(state)
    if found is None:
        machine.world.counts["damage: reported"] += 1
        return
    kept = {sequence: tag for sequence, tag in before.items() if sequence in found or sequence < recorded}
    if found != kept or list(found) != list(before)[: len(found)]:
        raise Violation(f"{record.name}, {what}: held {before}, {recorded} was recorded, now holds {found}")


def _damage(machine: Machine, rng: Random, directory: str, others: list[str]) -> str:
    """Damage one file of a log. `others` are the directories of the other logs."""
    disk = machine.disk
    if others and rng.random() < _EXCHANGED:
        return _exchange(machine, rng, directory, rng.choice(others))
    sizes = {name: size for name, size in disk.sizes(directory).items() if size}
    name = rng.choice(sorted(sizes))
    path = f"{directory}/{name}"
    match rng.choice(("flip", "flip", "cut", "remove")):
        case "flip":
            offset = rng.randrange(sizes[name])
            disk.flip(path, offset, rng.randrange(8))
            return f"flip {name} {offset}"
        case "cut":
            size = rng.randrange(sizes[name])
            disk.shorten(path, size)
            return f"cut {name} {size}"
        case _:
            disk.unlink(path)
            return f"remove {name}"


def _exchange(machine: Machine, rng: Random, directory: str, other: str) -> str:
    """Exchange two files of the same name; different names would reveal the exchange."""
    disk = machine.disk
    others = disk.list_dir(other)
    name = rng.choice([name for name in disk.list_dir(directory) if name in others])
    disk.rename(f"{directory}/{name}", f"{ROOT}/between")
    disk.rename(f"{other}/{name}", f"{directory}/{name}")
    disk.rename(f"{ROOT}/between", f"{other}/{name}")
    return f"exchange {name}"


def _read(machine: Machine, record: ResourceRecord, base: int | None) -> dict[int, Tag] | None:
    """Every content of a resource as served by a broker; None if it is reported as damaged."""
    engine = machine.engine()
    engine.restore()
    log = open_log_of(machine, engine, record, base)
    if log is None:
        return None
    at = log.earliest
    tags: dict[int, Tag] = {}
    try:
        for ref, pack, _ in chunks(log):
            for _, body in unpack(decode_pack(pack, ref.count)):
                tags[at] = bytes(body).decode()
                at += 1
    except StorageError:
        return None
    return tags
