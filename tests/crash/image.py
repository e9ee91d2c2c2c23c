"""The data directory after a power cut: the journal of the shim replayed on the directory before it.

The rules, stricter than those of any usual file system:

- of the pages written to a file since its last successful sync, each survives independently; the size of the
  file is the old one, the new one (pages that did not survive are zeros), or where the last surviving page ends;
- of the changes of names in a directory since its last fsync, a first part survives, in each directory another one;
  a rename between two directories is atomic, and durable with the fsync of either;
- a file may be durable in a directory that is not, and the other way round;
- when a sync fails, random choice decides at once which pages reached the disk. A later sync does not write them.
"""

from __future__ import annotations

import posixpath
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Survives = Literal["all", "none", "some"]

_RECORD = struct.Struct("<IBBHHHiIqQ")
_MAGIC = 0x4C4A5243
_OPEN, _CLOSE, _WRITE, _TRUNCATE, _SYNC, _RENAME, _LINK, _UNLINK, _MKDIR, _RMDIR = range(1, 11)
_MAKES, _EMPTIES = 1, 2
_PAGE = 4096


@dataclass(eq=False)
class _File:
    """`durable` survives a power cut; `pending` may be lost, in order: data at an offset, or a new size."""

    durable: bytearray
    size: int
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def write(self, offset: int, data: bytes) -> None:
        self.pending.append((offset, data))
        self.size = max(self.size, offset + len(data))

    def resize(self, size: int) -> None:
        self.pending.append((size, None))
        self.size = size

    def sync(self, survives: Callable[[], bool]) -> None:
        self.durable = self.after(survives, "new")
        self.pending = []

    def after(self, survives: Callable[[], bool], size: str) -> bytearray:
        """The octets with those pending pages that survive."""
        octets = bytearray(self.durable)
        last = len(octets)
        for offset, data in self.pending:
            if data is None:
                if offset < len(octets):
                    del octets[offset:]
                last = min(last, offset) if size == "kept" else last
                continue
            for start, piece in _pages(offset, data):
                if survives():
                    if start > len(octets):
                        octets.extend(bytes(start - len(octets)))
                    octets[start : start + len(piece)] = piece
                    last = max(last, start + len(piece))
        if size == "new":
            del octets[self.size :]
            octets.extend(bytes(self.size - len(octets)))
        return octets


def _pages(offset: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        step = min(_PAGE - (offset + at) % _PAGE, len(data) - at)
        yield offset + at, data[at : at + step]
        at += step


@dataclass(eq=False)
class _Directory:
    """Names now, and names that are durable."""

    now: dict[str, _Node] = field(default_factory=dict)
    durable: dict[str, _Node] = field(default_factory=dict)


_Node = _File | _Directory


@dataclass(frozen=True)
class _Change:
    """A change of names that is not durable yet: in each of its directories a name and its new node, or None."""

    parts: tuple[tuple[_Directory, str, _Node | None], ...]


class Image:
    """The state of a directory tree according to the journal."""

    def __init__(self, before: Path, root: str, chance: random.Random) -> None:
        """`before` is a copy of the directory as it was, all of it durable; `root` its name in the journal."""
        self._root = posixpath.normpath(root)
        self._chance = chance
        self._top = _load(before)
        self._open: dict[int, _Node] = {}
        self._changes: list[_Change] = []

    # --- replaying ------------------------------------------------------------------------------------------

    def replay(self, journal: bytes) -> None:
        """Replay the whole journal. A truncated record, of a killed process, is ignored."""
        at = 0
        while at + _RECORD.size <= len(journal):
            magic, op, failed, first, second, _, fd, flags, offset, length = _RECORD.unpack_from(journal, at)
            assert magic == _MAGIC, f"no record at {at} of the journal"
            at += _RECORD.size
            data = length if op == _WRITE else 0
            if at + first + second + data > len(journal):
                return
            name = journal[at : at + first].decode()
            target = journal[at + first : at + first + second].decode()
            at += first + second + data
            self._do(op, bool(failed), name, target, fd, flags, offset, journal[at - data : at])

    def _do(
        self, op: int, failed: bool, name: str, target: str, fd: int, flags: int, offset: int, data: bytes
    ) -> None:
        if op == _OPEN:
            self._opened(name, fd, flags)
        elif op == _CLOSE:
            self._open.pop(fd, None)
        elif op == _SYNC:
            self._sync(self._open[fd], failed)
        elif op in {_WRITE, _TRUNCATE}:
            file = self._open[fd]
            assert isinstance(file, _File)
            if op == _WRITE:
                file.write(offset, data)
            else:
                file.resize(offset)
        elif op == _RENAME:
            node = self._find(name)
            self._change((name, None), (target, node))
        elif op == _LINK:
            self._change((target, self._find(name)))
        elif op == _MKDIR:
            self._change((name, _Directory()))
        else:
            self._change((name, None))

    def _opened(self, path: str, fd: int, flags: int) -> None:
        if flags & _MAKES:
            self._change((path, _File(bytearray(), 0)))
        self._open[fd] = node = self._find(path)
        if flags & _EMPTIES and isinstance(node, _File) and node.size:
            node.resize(0)

    def _sync(self, node: _Node, failed: bool) -> None:
        if isinstance(node, _File):
            node.sync((lambda: self._chance.random() < 0.5) if failed else lambda: True)
        elif not failed:
            kept = []
            for change in self._changes:
                if any(directory is node for directory, _, _ in change.parts):
                    _apply(change, "durable")
                else:
                    kept.append(change)
            self._changes = kept

    def _change(self, *parts: tuple[str, _Node | None]) -> None:
        change = _Change(
            tuple((*self._place(path), node) for path, node in parts),
        )
        _apply(change, "now")
        self._changes.append(change)

    def _place(self, path: str) -> tuple[_Directory, str]:
        above, name = posixpath.split(posixpath.normpath(path))
        directory = self._find(above)
        assert isinstance(directory, _Directory)
        return directory, name

    def _find(self, path: str) -> _Node:
        node: _Node = self._top
        for name in posixpath.relpath(posixpath.normpath(path), self._root).split("/"):
            if name != ".":
                assert isinstance(node, _Directory)
                node = node.now[name]
        return node

    # --- the power cut --------------------------------------------------------------------------------------

    def write(self, target: Path, survives: Survives) -> None:
        """Write the remaining state to a new directory."""
        self._lose_names(survives)
        self._write(self._top, target, survives, {})

    def _lose_names(self, survives: Survives) -> None:
        """Of the changes that are not durable, in each directory a first part survives."""
        open_ones: set[int] = set()
        for change in self._changes:
            touched = [id(directory) for directory, _, _ in change.parts]
            lost = survives == "none" or (survives == "some" and self._chance.random() < 0.3)
            if lost or any(number in open_ones for number in touched):
                open_ones.update(touched)
            else:
                _apply(change, "durable")

    def _write(self, node: _Directory, target: Path, survives: Survives, written: dict[int, Path]) -> None:
        target.mkdir(mode=0o700)
        for name, child in node.durable.items():
            place = target / name
            if isinstance(child, _Directory):
                self._write(child, place, survives, written)
            elif id(child) in written:
                place.hardlink_to(written[id(child)])
            else:
                place.write_bytes(self._left(child, survives))
                place.chmod(0o600)
                written[id(child)] = place

    def _left(self, file: _File, survives: Survives) -> bytes:
        if survives == "none" or not file.pending:
            return bytes(file.durable)
        if survives == "all":
            return bytes(file.after(lambda: True, "new"))
        share = self._chance.choice((0.1, 0.5, 0.9))
        size = self._chance.choice(("old", "new", "kept"))
        octets = file.after(lambda: self._chance.random() < share, size)
        return bytes(octets[: max(len(file.durable), 0)] if size == "old" else octets)


def _apply(change: _Change, which: Literal["now", "durable"]) -> None:
    for directory, name, node in change.parts:
        names = directory.now if which == "now" else directory.durable
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def _load(path: Path) -> _Directory:
    made, links = _Directory(), dict[int, _File]()
    for entry in path.iterdir():
        if entry.name.endswith("-shm"):
            continue
        if entry.is_dir():
            made.now[entry.name] = _load(entry)
            continue
        number = entry.stat().st_ino
        if number not in links:
            octets = bytearray(entry.read_bytes())
            links[number] = _File(octets, len(octets))
        made.now[entry.name] = links[number]
    made.durable = dict(made.now)
    return made
