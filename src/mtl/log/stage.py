"""Reads the sealed segments of a stage for a resource's log. A stage is an ordinary log of its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mtl.errors import Damaged
from mtl.log.change import StagePart
from mtl.log.files import Disk, failure
from mtl.log.scan import Bad, FoundChunk, scan
from mtl.log.segment import Index, SegmentHeader, segment_base
from mtl.log.store import Store, read_header


@dataclass(frozen=True, slots=True)
class Part:
    """A stage's segment whose header and index verify. `bytes` is its size by the index; the file may be longer."""

    path: str
    header: SegmentHeader
    index: Index

    @property
    def count(self) -> int:
        return self.index.contents

    @property
    def bytes(self) -> int:
        return self.index.length


def stage_parts(disk: Disk, directory: str) -> tuple[StagePart, ...]:
    """The segments of a sealed stage in order, without empty ones. A stage's first content is 1.

    Damaged when one is missing, not sealed or not whole; StorageFailed when the disk does not read.
    """
    try:
        return _stage_parts(disk, directory)
    except OSError as error:
        raise failure(error, f"reading the stage {directory}") from error


def _stage_parts(disk: Disk, directory: str) -> tuple[StagePart, ...]:
    parts = []
    expected = 1
    for name, size in disk.sizes(directory).items():
        base = segment_base(name)
        if base is None:
            continue
        if base != expected:
            message = f"{directory}: contents {expected} to {base - 1} of the stage are missing"
            raise Damaged(message, file=directory, first=expected, end=base)
        part = _open(disk, f"{directory}/{name}", size)
        if part is not None:
            parts.append(StagePart(part.path, part.count, part.bytes))
            expected += part.count
    return tuple(parts)


def open_parts(disk: Disk, parts: Sequence[StagePart]) -> list[Part]:
    """Header and index of each part, for adopting or copying; Damaged when a part differs from its record."""
    opened = []
    for wanted in parts:
        part = _open(disk, wanted.path, None)
        if part is None or part.count != wanted.count:
            count = 0 if part is None else part.count
            message = f"{wanted.path}: a stage's segment of {wanted.count} contents has {count}"
            raise Damaged(message, file=wanted.path)
        opened.append(part)
    return opened


def _open(disk: Disk, path: str, size: int | None) -> Part | None:
    """None for a segment without contents that was never sealed."""
    directory, name = path.rsplit("/", 1)
    store = Store(disk, directory)
    base = segment_base(name)
    if base is None:
        raise Damaged(f"{path}: not a segment's name", file=path)
    header = read_header(disk, path)
    if header is None:
        raise Damaged(f"{path}: the segment's header does not verify", file=path, offset=0)
    if size is None:
        file = disk.open(path, "read")
        try:
            size = file.size()
        finally:
            file.close()
    index = store.index(base)
    if index is None or index.salt != header.salt:
        if size <= header.start:
            return None
        raise Damaged(f"{path}: the stage is not sealed, its index is missing", file=path)
    if index.length > size:
        raise Damaged(f"{path}: has {size} octets instead of {index.length}", file=path, offset=size)
    return Part(path, header, index) if index.contents else None


def chunks(disk: Disk, part: Part) -> Iterator[FoundChunk]:
    """The chunks of a part in order, each verified. Damaged if one is not whole."""
    file = disk.open(part.path, "read")
    contents = 0
    try:
        for item in scan(file, part.header, part.path, part.index.length):
            if isinstance(item, Bad):
                message = f"{part.path}: damaged at octet {item.offset}: {item.reason}"
                raise Damaged(message, file=part.path, offset=item.offset)
            if item.header.contents:
                contents += item.header.contents
                yield item
    finally:
        file.close()
    if contents != part.count:
        raise Damaged(f"{part.path}: holds {contents} contents, its index says {part.count}", file=part.path)
