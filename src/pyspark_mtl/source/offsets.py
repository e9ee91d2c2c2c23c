"""Offsets: the positions of a streaming query in its resources, and their JSON in Spark's checkpoint. Pure.

    {"resources": {"orders": {"e": "3.0a1b2c3d", "f": 1, "i": "9f2c", "n": 4001}}, "version": 1}

`i` is the resource's incarnation, `n` the next sequence to read, and `e` the epoch of the content before `n`, if there
is one (PROTOCOL.md 5.1.1). `i` and `e` detect a broker with another copy of the data. `f` is the sequence at which
reading began. Only the first offset that names the resource has it (or its new incarnation, or an earlier position
after a change to another copy). So Spark's own log fixes the meaning of "latest", a time or a group's cursor at the
start of the query. Keys are sorted and unchanged positions keep their text, so an idle query's offset never changes
and causes no batch.

The offset of a query that has not begun is `{"new": true, "resources": {}, "version": 1}`. Only `initialOffset` returns
it, and no checkpoint contains it. An offset without resources and without `new` is of a query that has begun and found
no resource; that query reads resources found later from their first content.

The JSON has to be readable by every later version: tests/golden/pyspark_mtl has examples.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mtl.errors import OffsetError
from mtl.wire.history import History

VERSION = 1

_EPOCH = re.compile(r"[0-9]{1,18}\.[0-9a-f]{8}")


@dataclass(frozen=True)
class Position:
    """The next sequence to read (from 1) in one incarnation of a resource, and the epoch of the content before it.
    `began` is the sequence at which reading began; only in the first offset with the resource.
    """

    incarnation: str
    next: int
    began: int | None = None
    epoch: str | None = None

    @property
    def settled(self) -> Position:
        """The same position in a later offset, without `began`, which Spark's log has by then."""
        return replace(self, began=None)


@dataclass(frozen=True)
class Offset:
    """Positions by resource; `new` for a query that has not begun. Immutable."""

    resources: Mapping[str, Position] = field(default_factory=dict)
    new: bool = False

    def json(self) -> dict[str, Any]:
        """The JSON value, with sorted keys, since Spark compares its text."""
        new: dict[str, Any] = {"new": True} if self.new else {}
        return {
            **new,
            "resources": {name: _position_json(self.resources[name]) for name in sorted(self.resources)},
            "version": VERSION,
        }

    def with_positions(self, changed: Mapping[str, Position]) -> Offset:
        """This offset with some positions replaced or added, of a query that has begun; itself if no position
        changes.

        Other positions stay: those of resources that are no longer in the options (parked), or were deleted. If a
        position changes, `began` is dropped from all older positions, because Spark's log has it by now.
        """
        merged = {**self.resources, **changed}
        if merged == self.resources and not self.new:
            return self
        return Offset(
            {
                name: position.settled if position == self.resources.get(name) else position
                for name, position in merged.items()
            }
        )

    def without(self, gone: Collection[str]) -> Offset:
        """This offset without the deleted resources `gone`; itself if it has none of them."""
        if self.resources.keys().isdisjoint(gone):
            return self
        return Offset(
            {name: position for name, position in self.resources.items() if name not in gone}, self.new
        )


INITIAL = Offset(new=True)
"""The constant answer of initialOffset: a changing one would lose data when batch 0 is replayed."""


def _position_json(position: Position) -> dict[str, Any]:
    optional = {"e": position.epoch, "f": position.began}
    given = {name: value for name, value in optional.items() if value is not None}
    return {**given, "i": position.incarnation, "n": position.next}


def parse(value: object) -> Offset:
    """The offset of a JSON value. OffsetError unless this connector wrote it, in a known version."""
    if not isinstance(value, dict) or type(value.get("version")) is not int:
        raise OffsetError(f"the checkpoint holds an offset that is not of this source: {value!r:.200}")
    if value["version"] != VERSION:
        raise OffsetError(
            f"the checkpoint holds an offset of version {value['version']}; this pyspark-mtl knows version {VERSION}"
        )
    resources = value.get("resources")
    if not isinstance(resources, dict):
        raise OffsetError(f"the checkpoint holds an offset without resources: {value!r:.200}")
    if "new" in value and (value["new"] is not True or resources):
        raise OffsetError(f"the checkpoint holds an offset that is new and has resources: {value!r:.200}")
    return Offset(
        {name: _parse_position(name, position) for name, position in resources.items()}, "new" in value
    )


def _parse_position(name: object, value: object) -> Position:
    if isinstance(name, str) and isinstance(value, dict):
        incarnation, following, began = value.get("i"), value.get("n"), value.get("f")
        epoch = value.get("e")
        if (
            isinstance(incarnation, str)
            and type(following) is int
            and following >= 1
            and (began is None or (type(began) is int and 1 <= began <= following))
            and (epoch is None or (isinstance(epoch, str) and _EPOCH.fullmatch(epoch)))
        ):
            return Position(incarnation, following, began, epoch)
    raise OffsetError(f"the checkpoint holds an ill-formed position of {name!r}: {value!r:.200}")


@dataclass(frozen=True)
class OffsetRange:
    """Contents [first, until) of one incarnation of a resource.

    `before` is the epoch of the content before `first`, `last` that of the last content; None if the offsets do not
    have it. `epochs` are those of the log, set after the check that the log has these contents (planning.py).
    """

    resource: str
    incarnation: str
    first: int
    until: int
    before: str | None = None
    last: str | None = None
    epochs: tuple[tuple[int, str], ...] = ()

    def epoch_of(self, position: int) -> str | None:
        """The epoch of the content before `position` in the log."""
        return History(self.epochs, self.until).epoch_of(position)

    @property
    def count(self) -> int:
        """The number of contents."""
        return self.until - self.first


def between(start: Offset, end: Offset) -> list[OffsetRange]:
    """The ranges that a batch reads, one per resource that moved, sorted by name.

    A range begins at the position in `start`. If `start` lacks the resource, or has another incarnation of it or
    another copy of its log, the range begins at the `began` of `end`. A resource that only `start` has was deleted;
    the loss was reported when `end` was made (progress.py). OffsetError if `end` does not follow from `start`.
    """
    ranges = (
        _between(name, start.resources.get(name), end.resources[name]) for name in sorted(end.resources)
    )
    return [offset_range for offset_range in ranges if offset_range.count]


def _between(name: str, before: Position | None, after: Position) -> OffsetRange:
    goes_on = before is not None and continues(before, after)
    first = before.next if before is not None and goes_on else after.began
    if first is None:
        raise OffsetError(
            f"the batch's end is the first offset with {name!r} and has no `f`, where reading began"
        )
    if first > after.next:
        raise OffsetError(f"the batch ends before it starts in {name!r}: from {first} to {after.next}")
    epoch = before.epoch if before is not None and goes_on else None
    return OffsetRange(name, after.incarnation, first, after.next, epoch, after.epoch)


def continues(before: Position, after: Position) -> bool:
    """Whether a batch that ends at `after` begins at `before`, the end of the batch before it."""
    return before.incarnation == after.incarnation and (after.began is None or after == before)
