from __future__ import annotations

from typing import Any

import msgspec
import pyarrow as pa
from hypothesis import given

from pyspark_mtl.bodies.encoding import encode
from pyspark_mtl.bodies.from_msgpack import FromMsgpack
from tests.support.typed import batches


@given(batches())
def test_what_is_written_is_read_as_it_was(rows: Any) -> None:
    found = FromMsgpack(rows.schema)(encode("msgpack", rows))
    found.rows.validate(full=True)
    assert found.bad == {}
    assert found.rows.equals(rows)


def test_a_bad_body_is_a_row_of_nulls() -> None:
    good = msgspec.msgpack.encode({"n": 1, "more": "!"})
    bodies = [good, b"", b"\xc1", good[:-1], good + b"\x00", msgspec.msgpack.encode({"n": "1"})]
    found = FromMsgpack(pa.schema([("n", pa.int32())]))(pa.array(bodies, pa.binary()))
    assert sorted(found.bad) == [1, 2, 3, 4, 5]
    assert found.rows.column("n").to_pylist() == [1] + [None] * 5
