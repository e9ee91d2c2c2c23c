from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pyspark_mtl.rows.bodies.decoding import FromText

DECODER = FromText(pa.schema([("line", pa.string())]))


@given(st.lists(st.binary(max_size=4) | st.text(max_size=4).map(str.encode), max_size=8))
def test_bodies_are_text_or_bad(bodies: list[bytes]) -> None:
    found = DECODER(pa.array(bodies, pa.binary()))
    for index, body in enumerate(bodies):
        try:
            expected = body.decode()
        except UnicodeDecodeError:
            expected = None
        assert found.rows.column("line")[index].as_py() == expected
        assert (index in found.bad) is (expected is None)


def test_octets_are_not_copied() -> None:
    bodies = pa.array([b"one", b"two"], pa.binary())
    assert DECODER(bodies).rows.column("line").buffers()[2].address == bodies.buffers()[2].address
