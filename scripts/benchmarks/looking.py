"""How every receiver of packs reads their octets: a mapped page that is not read costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa


def read_all_octets() -> Callable[[Any], int]:
    """A function that sums a buffer's octets at the speed of the processor and returns their number.

    Only receivers of packs import it: Arrow's functions are thousands of objects. Every later round of Python's
    garbage collector visits them, and roles that receive single contents lose a third of their speed.
    """
    from pyarrow import compute  # noqa: PLC0415 see above

    def read_octets(octets: Any) -> int:
        buffer = pa.py_buffer(octets)
        compute.sum(pa.Array.from_buffers(pa.int64(), buffer.size // 8, [None, buffer]))
        return int(buffer.size)

    return read_octets
