"""The guarantees, checked against the content of the disk: after the run has settled, and after hypothetical crashes.

no confirmed content is lost        no content exists twice, and none that was refused or never published
sequences have no gaps              the contents of one writer are in its order
delivered contents stay             stages are complete, in order and once, or absent
a replacing commit removes the replaced contents atomically
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mtl.broker.queues.dead_letters import PREFIX
from mtl.broker.writing.resources import log_options
from mtl.errors import Damaged
from mtl.storage.api import Engine, LogView, OpenLog
from mtl.storage.keys import log_key
from mtl.storage.orphans import LOST_FOUND
from mtl.storage.records import AnyRecord, PublishRecord, ResourceRecord, encode_owner
from mtl.wire.fields import decode_table
from mtl.wire.packs import decode_pack, unpack
from tests.simulator.machine import ROOT, BrokerProcess, Machine
from tests.simulator.model import Model, Tag, Version, Violation
from tests.simulator.queues import DEAD
from tests.support.engines import chunks

Contents = dict[str, dict[int, Tag]]
"""Per resource: sequence to tag."""

Letters = dict[tuple[str, str], list[dict[str, Any]]]
"""Per queue (its name and resource): the properties of its dead letters."""


def read_all(machine: Machine) -> tuple[Contents, Letters]:
    """Open the data directory as a broker would, and read every content and dead letter. Changes what it opens."""
    engine = machine.engine()
    records = engine.restore().records
    if machine.disk.exists(f"{ROOT}/{LOST_FOUND}"):
        raise Violation("there are logs without a record, although no record was lost")
    bases = interrupted_at(records)
    contents: Contents = {}
    letters: Letters = {}
    for record in records:
        if not isinstance(record, ResourceRecord):
            continue
        log = open_log_of(machine, engine, record, bases.get((record.vhost, record.name)))
        if log is None:
            raise Violation(f"{record.name} does not open")
        found = read_log(log, record.name)
        if record.name.endswith(DEAD):
            _sort_letters(letters, [properties for _, properties in found.values()])
        else:
            contents[record.name] = {sequence: tag for sequence, (tag, _) in found.items()}
    return contents, letters


def interrupted_at(records: Sequence[AnyRecord]) -> dict[tuple[str, str], int]:
    """The start of interrupted commits, by virtual host and resource."""
    return {(p.vhost, e.resource): e.base for p in records if isinstance(p, PublishRecord) for e in p.entries}


def open_log_of(
    machine: Machine, engine: Engine, record: ResourceRecord, base: int | None = None
) -> LogView | None:
    """The log of a resource, opened as the broker does; None for one that does not open."""
    options = log_options(record, machine.habits.segment_bytes)
    owner, now_us = encode_owner(record), machine.world.wall_us
    action = OpenLog(0, log_key(record), options, record.earliest, base, owner, now_us)
    (opened,) = engine.perform((action,))
    return opened[0] if isinstance(opened, tuple) else None


def _sort_letters(letters: Letters, found: list[dict[str, Any]]) -> None:
    for properties in found:
        letters.setdefault((properties[f"{PREFIX}queue"], properties[f"{PREFIX}resource"]), []).append(
            properties
        )


def read_log(log: LogView, name: str) -> dict[int, tuple[Tag, dict[str, Any]]]:
    """All contents of a log and their properties; raises for gaps."""
    tags: dict[int, tuple[Tag, dict[str, Any]]] = {}
    at = log.earliest
    for ref, pack, _ in chunks(log):
        if ref.base != at:
            raise Violation(f"{name}: a chunk begins at {ref.base} where {at} is due")
        for properties, body in unpack(decode_pack(pack, ref.count)):
            tags[at] = bytes(body).decode(), decode_table(properties)
            at += 1
    if at != log.next:
        raise Violation(f"{name} ends at {at}, not at {log.next}")
    return tags


def imagine_crash(machine: Machine, model: Model, keep: str) -> tuple[Machine, Contents]:
    """Check that confirmed and delivered contents would survive a power failure now. Returns the machine of the next
    broker, and the contents that it would find.
    """
    state = machine.world.random.getstate()
    twin = machine.twin()
    twin.disk.heal()
    twin.disk.crash(keep=keep)
    twin.store.crash(landed=keep == "all")
    contents, letters = read_all(twin.twin())
    machine.world.random.setstate(state)
    check_kept(model, contents)
    check_letters(letters)
    return twin, contents


def check_letters(letters: Letters) -> None:
    """No content of a queue is dead twice."""
    for queue, found in letters.items():
        sequences = [x[f"{PREFIX}sequence"] for x in found]
        if len(sequences) != len(set(sequences)):
            raise Violation(f"{queue} has dead letters twice: {sorted(sequences)}")


def check_kept(model: Model, contents: Contents) -> None:
    """Confirmed, delivered and described contents exist; none exists twice."""
    where = _places(model, contents)
    for tag, published in model.published.items():
        if tag in where and where[tag][0] != published.resource:
            raise Violation(f"{tag} for {published.resource} is in {where[tag][0]}")
        if published.refused and tag in where:
            raise Violation(f"{tag} was refused and is at {where[tag]}")
        if published.confirmed and tag not in where and "/" not in tag:
            raise Violation(f"{tag} was confirmed and is lost")
    check_snapshots(model, contents)
    replaced = {name for names in model.snapshots.values() for name in names}
    for resource, end in model.ends.items():
        if resource.endswith(DEAD) or resource in replaced:
            continue  # observers see these as well; `check_letters` and `check_snapshots` check them
        if end > max(contents.get(resource, {}), default=0) + 1:
            raise Violation(f"the end of {resource} was reported as {end}")
    for resource, shown_tags in model.delivered.items():
        tags = contents.get(resource, {})
        for sequence, tag in shown_tags.items():
            if tags.get(sequence) != tag:
                raise Violation(f"{resource} {sequence} was shown as {tag} and is {tags.get(sequence)}")


def _places(model: Model, contents: Contents) -> dict[Tag, tuple[str, int]]:
    """The positions of every tag; no tag is stored twice without permission."""
    where: dict[Tag, tuple[str, int]] = {}
    for resource, tags in contents.items():
        for sequence, tag in tags.items():
            if tag not in model.published:
                raise Violation(f"{resource} {sequence} is {tag!r}, which no client published")
            if tag in where and model.published[tag].once:
                raise Violation(f"{tag} is at {where[tag]} and at {(resource, sequence)}")
            where[tag] = resource, sequence
    return where


def check_visible(process: BrokerProcess) -> None:
    """The contents of a commit are visible in all its resources, or in none; and no log looks damaged."""
    broker = process.broker
    if not broker.ready:
        return
    for opened in broker.parts.resources:
        if isinstance(opened.unread.why, Damaged):
            raise Violation(f"without any damage readers of {opened.name} are refused: {opened.unread.why}")
    for record in broker.parts.applications._applications.values():
        visible: dict[bool, str] = {}
        for name, (first, count) in record.published.items():
            resource = broker.parts.resources.find(record.vhost, name)
            # A stopped resource shows no contents, and a commit without contents for it adds none.
            if count and resource is not None and resource.log is not None:
                visible[resource.end >= first + count] = name
                if first < resource.end < first + count:
                    raise Violation(f"{record.application} is visible in part in {name}: {record.published}")
        if len(visible) > 1:
            raise Violation(f"{record.application} is visible in {visible[True]} and not in {visible[False]}")


def check_all(model: Model, contents: Contents) -> None:
    """All checks of a settled system."""
    check_kept(model, contents)
    check_order(model, contents)
    check_stages(model, contents)


def check_order(model: Model, contents: Contents) -> None:
    """The contents of a writer are in its order, in every resource; of duplicates the first ones count."""
    seen: dict[Tag, None] = {}
    for resource, tags in contents.items():
        last: dict[str, int] = {}
        for sequence, tag in tags.items():
            published = model.published[tag]
            if published.number <= last.get(published.writer, 0):
                if published.once or tag not in seen:
                    raise Violation(f"{resource} {sequence}: {tag} comes after {last[published.writer]}")
                continue
            seen[tag] = None
            last[published.writer] = published.number


def check_snapshots(model: Model, contents: Contents) -> None:
    """A replacing application has one version in all its resources: the last answered one, or one requested since."""
    for application, resources in model.snapshots.items():
        known = {
            version: attempt for (name, version), attempt in model.versions.items() if name == application
        }
        answered = max(
            (version for version, attempt in known.items() if attempt.first is not None), default=0
        )
        lists = [
            stages for version, attempt in known.items() if version >= answered for stages in attempt.asked
        ]
        expected = [_contents_of(model, stages) for stages in lists] + ([] if answered else [{}])
        there = {name: list(contents[name].values()) for name in resources if contents.get(name)}
        if there not in expected:
            raise Violation(f"{application}, answered up to {answered}, holds {there}: none of {expected}")


def check_stages(model: Model, contents: Contents) -> None:
    """Every version has no contents, or all stages of one requested list, in its order."""
    found: dict[tuple[str, int], dict[str, dict[int, Tag]]] = {}
    for resource, tags in contents.items():
        for sequence, tag in tags.items():
            if "/" in tag:
                application, version, *_ = tag.split("/")
                places = found.setdefault((application, int(version)), {})
                places.setdefault(resource, {})[sequence] = tag
    for key in found:
        if key not in model.versions:
            raise Violation(f"{key} was never asked for and is there")
    for key, known in model.versions.items():
        if key[0] in model.snapshots:
            continue  # see `check_snapshots`
        _check_version(model, key, known, found.get(key, {}))


def _check_version(
    model: Model, key: tuple[str, int], known: Version, places: dict[str, dict[int, Tag]]
) -> None:
    expected = [_contents_of(model, stages) for stages in known.asked]
    there = {resource: list(tags.values()) for resource, tags in places.items()}
    if known.first is None and not there:
        return
    if there not in expected:
        raise Violation(f"{key} has {there}, which is none of {expected}")
    for resource, tags in places.items():
        first = min(tags)
        if list(tags) != list(range(first, first + len(tags))):
            raise Violation(f"{key} is scattered in {resource}: {list(tags)}")
        if known.first is not None and known.first.get(resource) != first:
            raise Violation(f"{key} begins at {first} of {resource}, not at {known.first}")


def _contents_of(model: Model, stages: tuple[str, ...]) -> dict[str, list[Tag]]:
    """The contents that a commit of these stages adds to each resource."""
    contents: dict[str, list[Tag]] = {}
    for stage in stages:
        for resource, tags in model.stages[stage].items():
            contents.setdefault(resource, []).extend(tags)
    return {resource: tags for resource, tags in contents.items() if tags}
