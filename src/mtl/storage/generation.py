"""The number of the last transaction, kept outside the database, to detect an older copy of the database.

The file `generation` next to `broker.db` has the database's name and the number of its last transaction. It is
written after each transaction without a sync, and so is never ahead of the database: a power cut may only set it
back. Its name does not begin with the name of the database, so that a copy of `broker.db*` does not include it.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from mtl.errors import Damaged, StorageFailed

NAME = "generation"


class GenerationMark(NamedTuple):
    """The name of a data directory's database, and the number of its last transaction according to this file."""

    database: str
    generation: int


class GenerationFile:
    """The file `generation`. It is opened for each use, since other processes change the records, too (`mtl user`)."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / NAME

    def read(self) -> GenerationMark | None:
        """The mark in the file; None without a file. Raises `Damaged`, `StorageFailed`."""
        try:
            return _decode(self.path.read_bytes(), self.path)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StorageFailed(f"{self.path}: {error.strerror}") from error

    def write(self, mark: GenerationMark, *, sync: bool = False, back: bool = False) -> None:
        """Write the mark, unless another process has written a later one meanwhile; with `back` in any case. Raises
        `StorageFailed`.
        """
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX)
                if back or self._older(os.pread(fd, 256, 0), mark):
                    octets = _encode(mark)
                    os.pwrite(fd, octets, 0)
                    os.ftruncate(fd, len(octets))
                if sync:
                    os.fsync(fd)
                    self._sync_name()
            finally:
                os.close(fd)
        except OSError as error:
            raise StorageFailed(f"{self.path}: {error.strerror}") from error

    def _older(self, octets: bytes, mark: GenerationMark) -> bool:
        try:
            present = _decode(octets, self.path)
        except Damaged:
            return True
        return present.database != mark.database or present.generation < mark.generation

    def _sync_name(self) -> None:
        fd = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _encode(mark: GenerationMark) -> bytes:
    text = f"{mark.database} {mark.generation:020d}".encode("ascii")
    return text + f" {google_crc32c.value(text):08x}\n".encode("ascii")


def _decode(octets: bytes, path: Path) -> GenerationMark:
    text, _, crc = octets.rpartition(b" ")
    words = text.split(b" ")
    if crc != f"{google_crc32c.value(text):08x}\n".encode("ascii") or len(words) != 2:
        raise Damaged(f"{path}: does not verify, so it cannot tell whether broker.db is the newest")
    return GenerationMark(words[0].decode("ascii"), int(words[1]))
