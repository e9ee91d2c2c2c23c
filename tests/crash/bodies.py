"""Bodies that identify their writer. Every octet follows from writer and number, so that any alteration, truncation or
exchange is detected.
"""

from __future__ import annotations

import hashlib

from tests.crash.history import Origin

_SIZES = (0, 10, 100, 100, 1000, 1000, 4000, 20_000)


def body(writer: str, number: int) -> bytes:
    """The content `number` of a writer."""
    head = b"%s %d\n" % (writer.encode(), number)
    digest = hashlib.blake2b(head, digest_size=32).digest()
    size = _SIZES[digest[0] % len(_SIZES)] + digest[1]
    return head + (digest * (size // 32 + 1))[:size]


def origin(octets: bytes) -> Origin | None:
    """The writer and number of a body; None if no writer sent these octets."""
    writer, _, number = octets.partition(b"\n")[0].rpartition(b" ")
    try:
        found = (writer.decode(), int(number))
    except ValueError:
        return None
    return found if octets == body(*found) else None
