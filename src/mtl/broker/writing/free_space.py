"""The free space on the disk. Below the watermark writers are refused, before the file system is full.

PROTOCOL.md 5.4. A full file system would also fail commits, cursors and the records, so the space below the watermark
is kept for these. Readers, commits and retention continue.
"""

from __future__ import annotations

import logging
from typing import Final

from mtl.errors import Refused
from mtl.wire.control import READ_ONLY

log = logging.getLogger("mtl.broker")

LOW_WATERMARK: Final = 1 << 30
"""Octets that have to stay free by default. The free space is checked once a second, and a fast disk takes a gigabyte
in that time."""

LOW_WATERMARK_SHARE: Final = 20
"""On a smaller file system the watermark is its size divided by this number, if that is less."""

MIB: Final = 1 << 20


class FreeSpace:
    """The free space on the disk, as last measured. `watermark` is in octets; 0 stands for the constants above."""

    def __init__(self, watermark: int) -> None:
        self._watermark = watermark
        self._low: Refused | None = None

    @property
    def is_low(self) -> bool:
        """Whether further contents have to be refused."""
        return self._low is not None

    def check(self) -> None:
        """Raises `Refused` 503 while the free space is too small."""
        if self._low is not None:
            raise self._low

    def measured(self, free: int, total: int) -> None:
        """Update the free and the total octets of the data directory's file system. A low space stays low until a
        quarter of the watermark more is free, so that writers are not refused and admitted with every segment.
        """
        mark = self._watermark or min(LOW_WATERMARK, total // LOW_WATERMARK_SHARE)
        enough = mark + mark // 4
        was_low, is_low = self.is_low, free < (enough if self.is_low else mark)
        self._low = _too_little(free, mark, enough) if is_low else None
        if is_low and not was_low:
            log.error("%s", self._low)
        elif was_low and not is_low:
            log.warning("the storage has %d MiB free; writers are served again", free // MIB)


def _too_little(free: int, mark: int, enough: int) -> Refused:
    return Refused(
        503,
        READ_ONLY,
        f"the broker takes no contents: its storage has {free // MIB} MiB free, less than its low-watermark of "
        f"{mark // MIB} MiB. It continues by itself from {enough // MIB} MiB on; let retention remove contents, delete "
        "resources, or make room",
        free=free,
        watermark=mark,
    )
