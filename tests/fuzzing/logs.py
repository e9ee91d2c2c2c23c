"""Files that the log reads from the disk: segments, indexes, and whole directories.

A checksum keeps mutated octets from every check behind it, so the first octet of an input says whether the checksums
are made right before it is read.
"""

from __future__ import annotations

import random
import struct
from contextlib import suppress
from pathlib import Path

from mtl.errors import Damaged, StorageError, UnknownFormat
from mtl.log.change import LogOptions
from mtl.log.chunk import HEADER_SIZE as CHUNK_HEADER
from mtl.log.chunk import MAGIC, RUN_SIZE, NewChunk, checksum, decode_header, encode_header, padded
from mtl.log.files import File
from mtl.log.log import open_log, rebuild_manifest
from mtl.log.manifest import MANIFEST, decode_manifest, encode_manifest, run_id
from mtl.log.scan import FoundChunk, scan, scan_beyond
from mtl.log.segment import (
    HEADER_SIZE,
    INDEX_HEADER_SIZE,
    INDEX_MAGIC,
    SEGMENT_MAGIC,
    decode_index,
    decode_segment_header,
    decode_snapshot,
    encode_index,
    encode_segment_header,
)
from tests.support.faulty_disk import FaultyDisk

GOLDEN = Path(__file__).parents[1] / "golden" / "log" / "v2"
FILES = {path.name: path.read_bytes() for path in sorted(GOLDEN.iterdir())}
NAMES = tuple(FILES)
TOKENS = (MAGIC, SEGMENT_MAGIC, INDEX_MAGIC)
SEALED, AS_IT_IS = b"\1", b"\0"

_U32 = struct.Struct("<I")
_RUNS = struct.Struct("<H")
_COUNTS = struct.Struct("<II")  # of a chunk header at 32: contents, octets of the body


# --- checksums ----------------------------------------------------------------------------------------------


def sealed(data: bytes) -> bytes:
    """The file with its checksums made right, whatever else is wrong with it."""
    image = bytearray(data)
    if image.startswith(SEGMENT_MAGIC) and len(image) >= HEADER_SIZE:
        _seal_segment(image)
    elif image.startswith(INDEX_MAGIC) and len(image) >= INDEX_HEADER_SIZE:
        _U32.pack_into(image, 72, checksum(bytes(image[INDEX_HEADER_SIZE:])))
        _U32.pack_into(image, 76, checksum(bytes(image[:76])))
    return bytes(image)


def _seal_segment(image: bytearray) -> None:
    at = HEADER_SIZE + padded(16 * _U32.unpack_from(image, 40)[0])
    _U32.pack_into(image, 44, checksum(bytes(image[HEADER_SIZE:at])))
    _U32.pack_into(image, 60, checksum(bytes(image[:60])))
    while image[at : at + 4] == MAGIC and at + CHUNK_HEADER <= len(image):
        image[at + 48 : at + 56] = image[32:40]  # the segment's salt
        (runs,), (_, body) = _RUNS.unpack_from(image, at + 6), _COUNTS.unpack_from(image, at + 32)
        end = at + CHUNK_HEADER + padded(runs * RUN_SIZE) + padded(body)
        _U32.pack_into(image, at + 40, checksum(bytes(image[at + CHUNK_HEADER : end])))
        attested = bytes(image[at : at + 60]) + struct.pack("<Q", at)
        _U32.pack_into(image, at + 60, checksum(attested))
        at = end


def _unwrap(data: bytes) -> bytes:
    return sealed(data[1:]) if data[:1] == SEALED else data[1:]


# --- one segment, one index ---------------------------------------------------------------------------------


class _Octets:
    """A file that is only read."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def size(self) -> int:
        return len(self._data)

    def pread(self, size: int, offset: int) -> bytes:
        return self._data[offset : offset + size]


def run_segment(data: bytes) -> None:
    """Header, table of writers and chunks: found ones encode again to the octets that they have."""
    image = _unwrap(data)
    with suppress(UnknownFormat):
        header = decode_segment_header(image, "segment")
        if header is None:
            return
        assert decode_segment_header(encode_segment_header(header), "segment") == header
        decode_snapshot(image, header)
        file: File = _Octets(image)  # type: ignore[assignment]  # it is only read
        end = header.start
        for found in scan(file, header, "segment", len(image)):
            if not isinstance(found, FoundChunk):
                scan_beyond(file, header, found.offset, len(image))
                return
            encoded = encode_header(found.header, found.offset)
            assert decode_header(encoded, found.offset, header.salt) == found.header
            assert len(found.runs()) == found.header.runs
            assert len(found.body()) == found.header.body
            assert found.offset == end
            end = found.end
        assert end <= max(len(image), header.start)


def run_index(data: bytes) -> None:
    """An index that is accepted encodes again to an equal one."""
    with suppress(UnknownFormat):
        index = decode_index(_unwrap(data), "index")
        if index is None:
            return
        again = decode_index(encode_index(index), "index")
        assert again is not None
        for before, after in zip(index.columns(), again.columns(), strict=True):
            assert list(before) == list(after)
        assert (index.base, index.contents, index.length) == (again.base, again.contents, again.length)


def run_manifest(data: bytes) -> None:
    """A manifest that is accepted encodes again to an equal one."""
    text = data[1:]
    octets = text + b"\n%08x\n" % checksum(text) if data[:1] == SEALED else text
    with suppress(UnknownFormat, Damaged):
        manifest = decode_manifest(octets, "manifest")
        assert decode_manifest(encode_manifest(manifest), "manifest") == manifest
        run_id(manifest.epochs, "0a0b0c0d")


# --- a whole log --------------------------------------------------------------------------------------------


def directory(files: dict[str, bytes]) -> bytes:
    """A log's files in one input: per file which name, how many octets, the octets."""
    parts = (bytes([NAMES.index(n)]) + len(x).to_bytes(2, "big") + x for n, x in files.items())
    return b"".join(parts)


def _files(data: bytes) -> dict[str, bytes]:
    files, at = {}, 0
    while at + 3 <= len(data):
        size = int.from_bytes(data[at + 1 : at + 3], "big")
        files[NAMES[data[at] % len(NAMES)]] = data[at + 3 : at + 3 + size]
        at += 3 + size
    return files


def run_recovery(data: bytes) -> None:
    """Opening the log either refuses with one of its errors, or gives a log that can be read and appended to.

    Only segments get correct checksums: the correctness of an index is known only by its checksum.
    """
    disk = FaultyDisk(random.Random(1))
    disk.make_dir("/log")
    for name, octets in _files(data[1:]).items():
        seal = data[:1] == SEALED and name.endswith(".segment")
        disk.put(f"/log/{name}", sealed(octets) if seal else octets)
    try:
        rebuild_manifest(disk, "/log", b"")
        reader, writer, _ = open_log(disk, "/log", LogOptions(), now_us=1, run="0a0b0c0d")
    except StorageError:
        return
    at = reader.earliest
    for _ in range(100):
        try:
            ref = reader.snapshot().find(at)
            if ref is None:
                break
            reader.snapshot().read(ref)
        except StorageError:
            break
        assert ref.base <= at < ref.base + ref.count
        at = ref.base + ref.count
    with suppress(StorageError):
        end = writer.next
        reader.apply(writer.append([NewChunk(1, b"one more")], now_us=2))
        added = reader.snapshot().find(end)
        assert added is not None
        assert bytes(reader.snapshot().read(added)) == b"one more"
    writer.close()
    reader.close()


MANIFESTS = (
    AS_IT_IS + FILES[MANIFEST],
    SEALED + FILES[MANIFEST].partition(b"\n")[0],
    SEALED + b'{"version":2}',
)
SEGMENTS = tuple(
    flag + FILES[name] for name in NAMES if name.endswith(".segment") for flag in (SEALED, AS_IT_IS)
)
INDEXES = tuple(
    flag + FILES[name] for name in NAMES if name.endswith(".index") for flag in (SEALED, AS_IT_IS)
)
DIRECTORIES = (
    SEALED + directory(FILES),
    AS_IT_IS + directory(FILES),
    SEALED + directory({name: octets for name, octets in FILES.items() if name.endswith(".segment")}),
    SEALED + directory({name: octets for name, octets in FILES.items() if "11.segment" in name}),
)
