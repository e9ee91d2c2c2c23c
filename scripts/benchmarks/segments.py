"""The broker's log, chunk by chunk: for a peer that writes or sends the same octets in the same portions."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path

from mtl.log.chunk import HEADER_SIZE, decode_header, padded
from mtl.log.segment import decode_segment_header


@dataclass(frozen=True)
class Portions:
    """A segment file, and ranges [start, end) in it: `groups` were synced at once, `bodies` are sent as one frame."""

    path: str
    groups: list[tuple[int, int]]
    bodies: list[tuple[int, int]]


def portions(log: Path) -> list[Portions]:
    """The portions of all segments of a log, in order. A group ends before a chunk that was written when more octets
    were durable.
    """
    return [_portions(path) for path in sorted(log.glob("*.segment"))]


def _portions(path: Path) -> Portions:
    groups: list[tuple[int, int]] = []
    bodies: list[tuple[int, int]] = []
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as view:
        segment = decode_segment_header(view[:HEADER_SIZE], str(path))
        assert segment is not None, f"{path} is not a segment"
        at = start = segment.start
        durable = None
        while at < len(view):
            header = decode_header(view[at : at + HEADER_SIZE], at, segment.salt)
            if header is None:
                break
            if durable is not None and header.durable != durable:
                groups.append((start, at))
                start = at
            durable = header.durable
            at += header.stored
            body = at - padded(header.body)
            bodies.append((body, body + header.body))
        if at > start:
            groups.append((start, at))
    return Portions(str(path), groups, bodies)
