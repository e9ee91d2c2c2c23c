"""What every receiver of packs does with their octets: a mapped page that is not read costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa


def read_all_octets() -> Callable[[Any], int]:
    """What adds up a buffer's octets, as fast as the processor reads them, and says how many there are.

    Only receivers of packs import it: Arrow's functions are thousands of objects, which every later round of Python's
    garbage collector looks at, and roles that take contents one by one lose a third of their speed.
    """
    from pyarrow import compute  # noqa: PLC0415 see above

    def read_octets(octets: Any) -> int:
        buffer = pa.py_buffer(octets)
        compute.sum(pa.Array.from_buffers(pa.int64(), buffer.size // 8, [None, buffer]))
        return int(buffer.size)

    return read_octets
