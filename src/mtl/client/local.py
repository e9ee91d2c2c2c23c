"""Reading packs where they lie: in the files of a broker on the same machine (PROTOCOL.md 5.6)."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from pathlib import Path

import pyarrow as pa

from mtl.errors import Malformed
from mtl.limits import LOCAL_FILES, MAX_PACK, PACK_OVERHEAD
from mtl.wire.control import LOCAL_KEY, LocalFiles
from mtl.wire.packs import ArrowBuffer
from mtl.wire.places import Place


class NotLocal(Exception):
    """The files are not ours to read, or are gone: what was told by its place has to be sent instead."""


def sees(files: LocalFiles) -> bool:
    """Whether this process may read the broker's files: the same machine, file system and user (or more than that)."""
    try:
        return Path(files.directory, LOCAL_KEY).read_text() == files.key
    except (OSError, ValueError):
        return False


class Places:
    """Reads packs where they lie. A few files stay open, since packs follow each other in them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        """Held while a file is read, for another thread may close it: its number would soon be another file's."""
        self._open: OrderedDict[str, int] = OrderedDict()

    def read(self, place: Place) -> ArrowBuffer:
        """The octets at a place, in memory of their own. NotLocal when they cannot be had, Malformed for too many."""
        if place.size > MAX_PACK + PACK_OVERHEAD:
            raise Malformed(f"a pack of {place.size} octets")
        buffer = pa.allocate_buffer(place.size)
        view = memoryview(buffer)
        done = 0
        try:
            with self._lock:
                file = self._file(place.file)
                while done < place.size:
                    read = os.preadv(file, [view[done:]], place.offset + done)
                    if not read:
                        raise NotLocal(f"{place.file} ends before octet {place.offset + place.size}")
                    done += read
        except OSError as error:
            raise NotLocal(f"{place.file}: {error.strerror}") from error
        return buffer

    def _file(self, path: str) -> int:
        file = self._open.get(path)
        if file is None:
            file = self._open[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if len(self._open) > LOCAL_FILES:
                os.close(self._open.popitem(last=False)[1])
        self._open.move_to_end(path)
        return file

    def close(self) -> None:
        """Close the files; what was read stays."""
        with self._lock:
            while self._open:
                os.close(self._open.popitem()[1])
