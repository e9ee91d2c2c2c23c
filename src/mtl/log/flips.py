"""Distinguishes a flipped bit from an unfinished write in the last group of a log, which nothing shows to be durable.

A page that was not written before a crash has its former data: after the end of a log zeros, or no data at all. So a
chunk that does not verify counts as unfinished if the file ends within it, or one of its sectors is all zeros. A
complete chunk that verifies after one bit of it is flipped was written, and has changed since.

Damage of more than one bit, and of a chunk with sectors of zeros in its data, is not detected: it looks like an
unfinished write.
"""

from __future__ import annotations

from mtl.log.chunk import HEADER_SIZE, ChunkHeader, NewerChunk, checksum, decode_header
from mtl.log.files import File

_SECTOR = 512
"""Octets that a disk writes whole or not at all."""

_POLYNOMIAL = 0x82F63B78
"""Of crc32c, bits reversed, as the checksum is computed."""

_TOP = 1 << 31


def find_flipped_header(file: File, offset: int, size: int, salt: int, sequence: int) -> ChunkHeader | None:
    """The original header of the chunk at `offset` of a file of `size` octets, if one flipped bit keeps the chunk from
    verifying; None when it is unfinished or damaged in another way. `sequence`: the expected relative sequence.
    """
    data = file.pread(HEADER_SIZE, offset)
    header = _header(data, offset, salt)
    flipped = header is None
    if header is None:
        candidates = (_header(_flip(data, bit), offset, salt) for bit in range(8 * len(data)))
        header = next((candidate for candidate in candidates if candidate is not None), None)
    if header is None or header.sequence != sequence or offset + header.stored > size:
        return None
    region = file.pread(header.region, offset + HEADER_SIZE)
    if len(region) < header.region or _has_empty_sector(data + region, offset):
        return None
    wrong = checksum(region) ^ header.crc
    if flipped:
        return header if not wrong else None
    return header if flipped_bit(wrong, 8 * len(region)) is not None else None


def _header(data: bytes, offset: int, salt: int) -> ChunkHeader | None:
    try:
        return decode_header(data, offset, salt)
    except NewerChunk:
        return None


def _flip(data: bytes, bit: int) -> bytes:
    image = bytearray(data)
    image[bit // 8] ^= 1 << bit % 8
    return bytes(image)


def _has_empty_sector(data: bytes, offset: int) -> bool:
    """Whether `data`, at `offset` of a file, is all zeros within one of the sectors that it fills or touches."""
    start = -(offset % _SECTOR)
    return any(not data[max(at, 0) : at + _SECTOR].strip(b"\0") for at in range(start, len(data), _SECTOR))


def flipped_bit(wrong: int, bits: int) -> int | None:
    """The bit, counted from the last one of `bits`, whose flip changes a checksum by the xor `wrong`; None if no single
    bit does.

    A bit with k bits after it changes the checksum by x^(32 + k) modulo the polynomial. k is found in two halves, by
    baby steps and giant steps: for 4 MiB some thousand of each.
    """
    stride = max(1, int(bits**0.5))
    baby: dict[int, int] = {}
    value = _POLYNOMIAL
    for steps in range(stride):
        baby[value] = steps
        value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
    back = [_steps_back(1 << bit, stride) for bit in range(32)]
    tables = [_combinations(back[at : at + 8]) for at in range(0, 32, 8)]
    value = wrong
    for giant in range(0, bits, stride):
        found = baby.get(value)
        if found is not None and giant + found < bits:
            return giant + found
        byte0, byte1, byte2, byte3 = value.to_bytes(4, "little")
        value = tables[0][byte0] ^ tables[1][byte1] ^ tables[2][byte2] ^ tables[3][byte3]
    return None


def _steps_back(value: int, steps: int) -> int:
    """`value` divided by x^steps."""
    for _ in range(steps):
        value = ((value ^ _POLYNOMIAL) << 1 | 1) if value & _TOP else value << 1
    return value


def _combinations(basis: list[int]) -> list[int]:
    """The xor of every subset of eight values, by the subset's bits."""
    sums = [0]
    for value in basis:
        sums += [known ^ value for known in sums]
    return sums
