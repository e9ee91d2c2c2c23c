from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.errors import Malformed
from mtl.limits import MAX_PACK, PACK_OVERHEAD
from mtl.wire.commands import delivery_timestamp, packed_count, packed_properties
from mtl.wire.fields import EMPTY, Value, encode_table
from mtl.wire.ranges import FILE, OFFSET, SIZE, FileRange

PLACE = FileRange("/data/resources/r-1/1.segment", 4096, 1_000_000)


@given(
    file=st.text("abc/é.", max_size=40).map("/".__add__),
    offset=st.integers(0, 2**63 - 1),
    size=st.integers(1, MAX_PACK + PACK_OVERHEAD),
    count=st.integers(1, 10_000),
    stamp=st.integers(0, 2**62),
)
def test_a_range_is_decoded_from_its_properties(
    file: str, offset: int, size: int, count: int, stamp: int
) -> None:
    file_range = FileRange(file, offset, size)

    properties = file_range.properties(count, stamp)

    assert FileRange.of(properties) == file_range
    assert (packed_count(properties), delivery_timestamp(properties)) == (count, stamp)


@pytest.mark.parametrize("properties", [EMPTY, packed_properties(7), packed_properties(7, 8)])
def test_properties_of_an_ordinary_pack_have_no_place(properties: bytes) -> None:
    assert FileRange.of(properties) is None


def test_a_property_with_the_text_of_a_place_is_not_a_place() -> None:
    assert FileRange.of(encode_table({"name": FILE})) is None


WHOLE: dict[str, Value] = {FILE: "/f", OFFSET: 0, SIZE: 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {FILE: 1}, {FILE: "relative"}, {OFFSET: -1}, {OFFSET: "0"}, {OFFSET: True}, {SIZE: 0}, {SIZE: None},
        {SIZE: MAX_PACK + PACK_OVERHEAD + 1},
    ],
)  # fmt: skip
def test_an_incomplete_place_is_malformed(wrong: dict[str, Value]) -> None:
    with pytest.raises(Malformed):
        FileRange.of(encode_table({**WHOLE, **wrong}))


@pytest.mark.parametrize("missing", [OFFSET, SIZE])
def test_a_place_without_one_of_its_members_is_malformed(missing: str) -> None:
    with pytest.raises(Malformed):
        FileRange.of(encode_table({name: value for name, value in WHOLE.items() if name != missing}))
