"""Offsets: how far a streaming query has read in each resource, and their JSON in Spark's checkpoint. Pure.

    {"resources": {"orders": {"f": 1, "i": "9f2c", "n": 4001}}, "version": 1}

`i` is the resource's incarnation, `n` the next sequence to read. `f` is where reading began; it is there only in the
first offset that names the resource (or this incarnation of it), so that Spark's own log pins what "latest", a time or
a group's cursor meant when the query began. Keys are sorted and positions that stand still keep their text, so an
idle query's offset never changes and costs no batch.

The JSON outlives every version of this code: tests/golden/pyspark_mtl holds examples that must stay readable.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from mtl.errors import OffsetError

VERSION = 1


@dataclass(frozen=True)
class Position:
    """The next sequence to read (from 1) in one incarnation of a resource; `began` only where it is first named."""

    incarnation: str
    next: int
    began: int | None = None

    def moved(self, to: int) -> Position:
        """The position after reading up to `to`; what began earlier is in the log by now."""
        return Position(self.incarnation, to)


@dataclass(frozen=True)
class Offset:
    """Positions by resource. Immutable."""

    resources: Mapping[str, Position] = field(default_factory=dict)

    def json(self) -> dict[str, Any]:
        """The JSON value, keys sorted; Spark keeps its text."""
        return {
            "resources": {name: _position_json(self.resources[name]) for name in sorted(self.resources)},
            "version": VERSION,
        }

    def with_positions(self, changed: Mapping[str, Position]) -> Offset:
        """This offset with some positions replaced or added; itself when nothing moves.

        Positions that are not `changed` stay as they are: of resources that left the options (parked) or are gone.
        Where anything moves, what began earlier is dropped everywhere, for it is in Spark's log by now.
        """
        merged = {**self.resources, **changed}
        if merged == self.resources:
            return self
        return Offset(
            {name: _settled(self.resources.get(name), position) for name, position in merged.items()}
        )

    def without(self, gone: Collection[str]) -> Offset:
        """This offset without the resources that are gone for good; itself when there are none."""
        if not gone:
            return self
        return Offset({name: position for name, position in self.resources.items() if name not in gone})


INITIAL = Offset()
"""What initialOffset answers, always: a moving one would lose data when batch 0 is replayed."""


def _settled(before: Position | None, after: Position) -> Position:
    known = before is not None and before.incarnation == after.incarnation
    return after.moved(after.next) if known else after


def _position_json(position: Position) -> dict[str, Any]:
    found: dict[str, Any] = {} if position.began is None else {"f": position.began}
    return {**found, "i": position.incarnation, "n": position.next}


def parse(value: object) -> Offset:
    """The offset of a JSON value. OffsetError unless this connector wrote it, in a version that this one knows."""
    if not isinstance(value, dict) or type(value.get("version")) is not int:
        raise OffsetError(f"the checkpoint holds an offset that is not of this source: {value!r:.200}")
    if value["version"] != VERSION:
        raise OffsetError(
            f"the checkpoint holds an offset of version {value['version']}; this pyspark-mtl knows version {VERSION}"
        )
    resources = value.get("resources")
    if not isinstance(resources, dict):
        raise OffsetError(f"the checkpoint holds an offset without resources: {value!r:.200}")
    return Offset({name: _parse_position(name, one) for name, one in resources.items()})


def _parse_position(name: object, value: object) -> Position:
    if isinstance(name, str) and isinstance(value, dict):
        incarnation, following, began = value.get("i"), value.get("n"), value.get("f")
        if (
            isinstance(incarnation, str)
            and type(following) is int
            and following >= 1
            and (began is None or (type(began) is int and 1 <= began <= following))
        ):
            return Position(incarnation, following, began)
    raise OffsetError(f"the checkpoint holds an ill-formed position of {name!r}: {value!r:.200}")


@dataclass(frozen=True)
class Range:
    """Contents [first, until) of one incarnation of a resource."""

    resource: str
    incarnation: str
    first: int
    until: int

    @property
    def count(self) -> int:
        """How many contents it holds."""
        return self.until - self.first


def between(start: Offset, end: Offset) -> list[Range]:
    """What a batch reads, per resource that moved, sorted by name.

    A resource begins where `start` left it; where `start` does not know it, or knew another incarnation of it, it
    begins at the `began` of `end`. One that `end` does not name was found to be gone, and told so, when `end` was made
    (progress.py). OffsetError where `end` does not follow from `start`.
    """
    ranges = (
        _between(name, start.resources.get(name), end.resources[name]) for name in sorted(end.resources)
    )
    return [one for one in ranges if one.count]


def _between(name: str, before: Position | None, after: Position) -> Range:
    first = before.next if before and before.incarnation == after.incarnation else after.began
    if first is None:
        raise OffsetError(f"the batch's end is the first to name {name!r} and does not say where it began")
    if first > after.next:
        raise OffsetError(f"the batch ends before it starts in {name!r}: from {first} to {after.next}")
    return Range(name, after.incarnation, first, after.next)
