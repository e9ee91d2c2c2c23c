"""The files of one log: reading and making segments, indexes and the manifest, each step atomically.

A file gets its final name by a rename, after its bytes are durable, so a file with a final name is complete; a name
counts as durable once its directory was synced. Methods raise OSError for the system's errors, Damaged for bytes
that do not verify.
"""

from __future__ import annotations

import errno

from mtl.errors import Damaged
from mtl.log.files import Disk, File, write_fully
from mtl.log.limits import SCAN_BLOCK
from mtl.log.manifest import (
    MANIFEST,
    NEW_MANIFEST,
    Manifest,
    decode_manifest,
    encode_manifest,
    unusable,
)
from mtl.log.segment import (
    HEADER_SIZE,
    NEW_INDEX,
    NEW_LINK,
    STASHED,
    TEMPORARY,
    Index,
    SegmentHeader,
    decode_index,
    decode_segment_header,
    decode_snapshot,
    encode_index,
    encode_segment,
    index_name,
    segment_name,
)

_NO_LINKS = {errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}


class NamesNotSynced(OSError):
    """fsync of a directory failed: it is not known which of its names would survive a crash."""


class Store:
    """One log's directory on a disk. Has no other state."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.disk = disk
        self.directory = directory

    def path(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def segment_path(self, base: int) -> str:
        return self.path(segment_name(base))

    def sync_names(self) -> None:
        try:
            self.disk.fsync_dir(self.directory)
        except OSError as error:
            raise NamesNotSynced(error.errno, error.strerror) from error

    def remove(self, name: str) -> None:
        """Unlink a file that may not be there."""
        try:
            self.disk.unlink(self.path(name))
        except FileNotFoundError:
            pass

    # --- reading --------------------------------------------------------------------------------------------

    def read(self, name: str) -> bytes | None:
        """The octets of a small file, None when it does not exist."""
        try:
            file = self.disk.open(self.path(name), "read")
        except FileNotFoundError:
            return None
        try:
            return file.pread(file.size(), 0)
        finally:
            file.close()

    def header(self, base: int) -> SegmentHeader:
        """The header of a segment, Damaged without one. If the segment was adopted, the header has another base."""
        path = self.segment_path(base)
        header = read_header(self.disk, path)
        if header is None:
            message = f"{path}: the segment's header does not verify; contents from {base} on are affected"
            raise Damaged(message, file=path, offset=0, first=base)
        return header

    def segment_size(self, base: int) -> int:
        """Octets of a segment's file."""
        file = self.disk.open(self.segment_path(base), "read")
        try:
            return file.size()
        finally:
            file.close()

    def snapshot(self, name: str, header: SegmentHeader) -> dict[int, int]:
        """The dedup table at the head of a segment file."""
        path = self.path(name)
        file = self.disk.open(path, "read")
        try:
            numbers = decode_snapshot(file.pread(header.start, 0), header)
        finally:
            file.close()
        if numbers is None:
            message = f"{path}: the table of writers at its head does not verify"
            raise Damaged(message, file=path, offset=HEADER_SIZE, first=header.base)
        return numbers

    def index(self, base: int) -> Index | None:
        """The index of a segment, None when it is missing or does not verify."""
        name = index_name(base)
        data = self.read(name)
        index = None if data is None else decode_index(data, self.path(name))
        return index if index is not None and index.base == base else None

    def manifest(self) -> Manifest:
        """The log's manifest. Damaged when it is missing or does not verify."""
        path = self.path(MANIFEST)
        data = self.read(MANIFEST)
        if data is None:
            raise unusable(path, "the file is missing")
        return decode_manifest(data, path)

    # --- making ---------------------------------------------------------------------------------------------

    def write_manifest(self, manifest: Manifest) -> None:
        """Replace the manifest. Durable when this returns."""
        self.prepare_manifest(manifest)
        self.sync_names()

    def prepare_manifest(self, manifest: Manifest) -> None:
        """The same, but durable only after `sync_names`."""
        self._write(NEW_MANIFEST, encode_manifest(manifest)).close()
        self.disk.rename(self.path(NEW_MANIFEST), self.path(MANIFEST))

    def write_index(self, index: Index) -> None:
        """Write the index of a segment. Durable when this returns."""
        self._write(NEW_INDEX, encode_index(index)).close()
        self.place(NEW_INDEX, index_name(index.base))

    def write_segment(self, base: int, time: int, numbers: dict[int, int]) -> tuple[File, SegmentHeader]:
        """A new segment under its temporary name, its bytes durable; `place` gives it the final one."""
        salt = int.from_bytes(self.disk.entropy(8), "little")
        data = encode_segment(base, time, salt, numbers)
        file = self._write(TEMPORARY, data)
        header = decode_segment_header(data, self.path(TEMPORARY))
        assert header is not None
        return file, header

    def stash(self) -> None:
        """Keep the segment just written as STASHED, durably."""
        self.disk.rename(self.path(TEMPORARY), self.path(STASHED))
        self.sync_names()

    def place(self, source: str, target: str) -> None:
        """Give a complete file its final name, durably."""
        self.disk.rename(self.path(source), self.path(target))
        self.sync_names()

    def _write(self, name: str, data: bytes) -> File:
        # A file left by a failed attempt is not used again: its pages may be clean in the cache and not on the disk.
        self.remove(name)
        file = self.disk.open(self.path(name), "create")
        try:
            write_fully(file, [data], 0)
            file.sync()
        except OSError:
            file.close()
            raise
        return file

    # --- taking over another log's files --------------------------------------------------------------------

    def adopt_file(self, source: str, name: str) -> None:
        """Put another directory's complete file here under a final name, durably: by a link, or else by a copy."""
        self.remove(NEW_LINK)
        try:
            self.disk.link(source, self.path(NEW_LINK))
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            self._copy(source)
        self.place(NEW_LINK, name)

    def _copy(self, source: str) -> None:
        original = self.disk.open(source, "read")
        try:
            copy = self.disk.open(self.path(NEW_LINK), "create")
            try:
                at = 0
                while data := original.pread(SCAN_BLOCK, at):
                    at += write_fully(copy, [data], at)
                copy.sync()
            finally:
                copy.close()
        finally:
            original.close()


def read_header(disk: Disk, path: str) -> SegmentHeader | None:
    """The header of a segment file, None when it does not verify."""
    file = disk.open(path, "read")
    try:
        return decode_segment_header(file.pread(HEADER_SIZE, 0), path)
    finally:
        file.close()
