"""Reads packs directly from the files of a broker on the same machine (PROTOCOL.md 5.6).

Packs are copied into memory of this process and not mapped: the file of a mapping may be cut at any time later, and an
access to a lost page ends the process by SIGBUS.
"""

from __future__ import annotations

import os
from collections import OrderedDict

import pyarrow as pa

from mtl.client.granted_directory import GrantedDirectory
from mtl.client.limits import LOCAL_FILES
from mtl.client.turn import Turn
from mtl.errors import Malformed
from mtl.limits import MAX_PACK, PACK_OVERHEAD
from mtl.wire.control import LocalFiles
from mtl.wire.packs import ArrowBuffer
from mtl.wire.ranges import FileRange


class NotLocal(Exception):
    """The broker's files are missing, or this process may not read them: the broker has to send the packs."""


class LocalPacks:
    """Reads packs from files of the directory that was granted last. A few files stay open, since successive packs are
    in the same file.
    """

    def __init__(self) -> None:
        self._turn = Turn()
        """A file is read in it: another thread might close the file, and its descriptor would be reused."""
        self._open: OrderedDict[str, int] = OrderedDict()
        """Descriptors by path, the last used one at the end."""
        self._granted: GrantedDirectory | None = None

    def grant(self, files: LocalFiles) -> None:
        """Read below this directory from now on. NotLocal if this process cannot read it: another machine, file system
        or user.
        """
        self._turn.run(self._grant, files)

    def _grant(self, files: LocalFiles) -> None:
        if self._granted is not None and self._granted.files == files:
            return
        self._forget()
        try:
            self._granted = GrantedDirectory(files)
        except OSError as error:
            raise NotLocal(
                f"{files.directory} cannot be read as the broker's directory: {error.strerror}"
            ) from error

    def read(self, file_range: FileRange) -> ArrowBuffer:
        """A copy of the octets at a file_range. NotLocal if they are missing, Malformed for more than a pack has."""
        if file_range.size > MAX_PACK + PACK_OVERHEAD:
            raise Malformed(f"a pack of {file_range.size} octets")
        try:
            return self._turn.run(lambda: _copied(self._descriptor(file_range.file), file_range))
        except EOFError as error:
            raise NotLocal(
                f"{file_range.file} ends before octet {file_range.offset + file_range.size}"
            ) from error
        except OSError as error:
            raise NotLocal(f"{file_range.file}: {error.strerror}") from error

    def _descriptor(self, path: str) -> int:
        if path not in self._open:
            if self._granted is None:
                raise NotLocal("the broker has granted no directory")
            self._open[path] = self._granted.open(path)
            if len(self._open) > LOCAL_FILES:
                os.close(self._open.popitem(last=False)[1])
        self._open.move_to_end(path)
        return self._open[path]

    def close(self) -> None:
        """Close the files; buffers that were returned stay valid."""
        self._turn.run(self._forget)

    def _forget(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])
        granted, self._granted = (
            self._granted,
            None,
        )  # first: an interrupted call must not close it a second time
        if granted is not None:
            granted.close()


def _copied(fd: int, file_range: FileRange) -> ArrowBuffer:
    """A copy of the octets at a file_range. EOFError if the file ends before."""
    buffer = pa.allocate_buffer(file_range.size)
    view = memoryview(buffer)
    done = 0
    while done < file_range.size:
        read = os.preadv(fd, [view[done:]], file_range.offset + done)
        if not read:
            raise EOFError
        done += read
    return buffer
