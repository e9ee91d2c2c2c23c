"""What every receiver of packs does with their octets: a mapped page that nobody looks at costs nothing."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def look_at(octets: Any) -> int:
    """Add up a buffer's octets, as fast as the processor reads them; how many there are."""
    buffer = pa.py_buffer(octets)
    numbers = pa.Array.from_buffers(pa.int64(), buffer.size // 8, [None, buffer])
    pc.sum(numbers)
    return int(buffer.size)
