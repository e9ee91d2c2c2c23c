from __future__ import annotations

import struct
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.errors import ContentTooLarge, FieldError, Malformed
from mtl.limits import MAX_CONTENT, MAX_PACK, MAX_PACK_CONTENTS, MAX_PACK_PROPERTIES, MAX_TABLE, PACK_OVERHEAD
from mtl.wire.fields import EMPTY, encode_table
from mtl.wire.limits import PACK_METADATA
from mtl.wire.packs import (
    SCHEMA,
    decode_pack,
    encode_batch,
    encode_pack,
    pack_size,
    trust_pack,
    unpack,
)

PROPERTIES = st.none() | st.dictionaries(
    st.sampled_from("abc"), st.integers(0, 3) | st.text("é\n", max_size=3)
).map(encode_table)
CONTENTS = st.lists(st.tuples(PROPERTIES, st.binary(max_size=20)), min_size=1, max_size=20)
Contents = list[tuple[bytes | None, bytes]]

THREE: Contents = [(None, b"one"), (encode_table({"k": "v"}), b""), (encode_table({"n": 1}), b"three")]


def pack(contents: Contents) -> bytes:
    return bytes(encode_pack([body for _, body in contents], [properties for properties, _ in contents]))


def plain(contents: Contents) -> list[tuple[bytes, bytes]]:
    return [(properties or EMPTY, body) for properties, body in contents]


def contents_of(batch: Any) -> list[tuple[bytes, bytes]]:
    return [(properties, bytes(body)) for properties, body in unpack(batch)]


def batch_of(properties: list[bytes | None], bodies: list[bytes | None]) -> Any:
    columns = [pa.array(properties, pa.binary()), pa.array(bodies, pa.binary())]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def octets(batch: Any, **options: Any) -> bytes:
    """A batch of any schema in Arrow's own encoding."""
    return bytes(batch.serialize()) if not options else stream_message(batch, **options)


def stream_message(batch: Any, **options: Any) -> bytes:
    """The message of the record batch from a stream, which allows other options of writing."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    reader = pa.ipc.MessageReader.open_stream(sink.getvalue())
    for message in reader:
        if message.type == "record batch":
            return bytes(message.serialize())
    raise AssertionError("a stream without a batch")


# --- there and back -----------------------------------------------------------------------------------------


@given(CONTENTS)
def test_encoded_contents_are_decoded(contents: Contents) -> None:
    raw = pack(contents)
    batch = decode_pack(raw, len(contents))
    assert batch.schema == SCHEMA
    assert contents_of(batch) == plain(contents)
    assert trust_pack(raw).equals(batch)
    assert len(raw) <= pack_size(len(contents), sum(len(p or b"") + len(b) for p, b in contents))


def test_properties_may_be_missing_or_empty() -> None:
    for properties in (None, [None, None], [EMPTY, EMPTY]):
        batch = decode_pack(encode_pack([b"a", b"b"], properties), 2)
        assert batch.column(0).null_count == 2
        assert contents_of(batch) == [(EMPTY, b"a"), (EMPTY, b"b")]


def test_bodies_are_any_buffers() -> None:
    raw = encode_pack([b"a", bytearray(b"b"), memoryview(b"c"), pa.py_buffer(b"d")])
    assert [body for _, body in contents_of(decode_pack(raw, 4))] == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, pa.py_buffer])
def test_packs_are_any_buffers(wrap: Any) -> None:
    assert contents_of(decode_pack(wrap(pack(THREE)), 3)) == plain(THREE)


@pytest.mark.parametrize("shift", range(8))
def test_a_pack_may_have_any_alignment_in_memory(shift: int) -> None:
    raw = memoryview(bytes(shift) + pack(THREE))[shift:]
    assert contents_of(decode_pack(raw, 3)) == plain(THREE)


def test_a_decoded_batch_uses_the_octets_without_a_copy() -> None:
    raw = pa.py_buffer(pack(THREE))
    for batch in (decode_pack(raw, 3), trust_pack(raw)):
        for buffer in batch.column(1).buffers()[1:]:
            assert raw.address <= buffer.address < raw.address + raw.size


@given(CONTENTS, st.data())
def test_a_slice_is_encoded_and_decoded_as_its_own_rows(contents: Contents, data: st.DataObject) -> None:
    first = data.draw(st.integers(0, len(contents) - 1))
    count = data.draw(st.integers(1, len(contents) - first))
    part = decode_pack(pack(contents), len(contents)).slice(first, count)
    expected = plain(contents[first : first + count])
    assert contents_of(part) == expected
    assert contents_of(decode_pack(encode_batch(part), count)) == expected


@pytest.mark.parametrize("first", [0, 1, 7, 8, 63, 64, 999])
def test_the_encoding_of_a_slice_excludes_its_parent(first: int) -> None:
    properties = [None if n % 3 else encode_table({"n": n}) for n in range(1_000)]
    parent = batch_of(list(properties), [bytes(1_000)] * 1_000)
    part = encode_batch(parent.slice(first, 1))
    assert part.size < 1_000 + pack_size(1, 100) - PACK_METADATA + 300
    assert contents_of(decode_pack(part, 1)) == [(properties[first] or EMPTY, bytes(1_000))]


def test_an_empty_batch_unpacks_to_nothing() -> None:
    assert contents_of(decode_pack(pack(THREE), 3).slice(1, 0)) == []


def test_the_octets_are_aligned_and_uncompressed() -> None:
    raw = pack([(None, b"x" * 1_000)])
    marker, size = struct.unpack_from("<II", raw)
    assert marker == 0xFFFF_FFFF
    assert (8 + size) % 8 == 0
    assert len(raw) % 8 == 0
    assert b"x" * 1_000 in raw


# --- limits -------------------------------------------------------------------------------------------------


def test_a_pack_of_the_largest_size_fits() -> None:
    bodies = [bytes(MAX_PACK // MAX_PACK_CONTENTS)] * (MAX_PACK_CONTENTS - 1)
    bodies.append(bytes(MAX_PACK - sum(map(len, bodies))))
    raw = encode_pack(bodies)
    assert decode_pack(raw, MAX_PACK_CONTENTS).num_rows == MAX_PACK_CONTENTS
    with pytest.raises(ContentTooLarge):
        encode_pack([*bodies, b""])


def test_the_largest_content_with_the_largest_properties_fits() -> None:
    table = encode_table({"k": bytes(MAX_TABLE - 11)})
    assert len(table) == MAX_TABLE
    raw = encode_pack([bytes(MAX_CONTENT)], [table])
    assert decode_pack(raw, 1).num_rows == 1


def test_contents_above_the_largest_pack_are_refused() -> None:
    assert encode_pack([bytes(1_000)], max_pack=1_000)
    with pytest.raises(ContentTooLarge):
        encode_pack([bytes(PACK_OVERHEAD + 1_000)], max_pack=1_000)
    with pytest.raises(ContentTooLarge):
        encode_batch(batch_of([None], [bytes(PACK_OVERHEAD + 1_000)]), max_pack=1_000)


@pytest.mark.parametrize(
    "batch",
    [
        batch_of([], []),
        batch_of([None], [None]),
        pa.RecordBatch.from_pydict({"properties": [None], "body": [b""]}),
        pa.RecordBatch.from_arrays([pa.array([b""]), pa.array([b""])], names=["body", "properties"]),
        pa.RecordBatch.from_arrays([pa.array([b""]), pa.array([b""], pa.large_binary())], names=SCHEMA.names),
        pa.RecordBatch.from_arrays([pa.array([b""])], names=["body"]),
    ],
    ids=range(6),
)
def test_batches_of_another_schema_are_refused(batch: Any) -> None:
    with pytest.raises(FieldError):
        encode_batch(batch)


def test_an_empty_pack_is_refused() -> None:
    with pytest.raises(FieldError, match="no contents"):
        encode_pack([])


# --- malformed packs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [-1, 0, 1, 2, 4, MAX_PACK_CONTENTS, MAX_PACK_CONTENTS + 1, 1 << 63])
def test_a_wrong_count_is_malformed(count: int) -> None:
    with pytest.raises(Malformed):
        decode_pack(pack(THREE), count)


@pytest.mark.parametrize("contents", [THREE, THREE[:1], [(None, b"abc")] * 3])
def test_a_truncated_or_extended_pack_is_malformed(contents: Contents) -> None:
    raw = pack(contents)
    for end in range(len(raw)):
        with pytest.raises(Malformed):
            decode_pack(raw[:end], len(contents))
    for more in (b"\0", bytes(8), raw):
        with pytest.raises(Malformed, match="length"):
            decode_pack(raw + more, len(contents))


@pytest.mark.parametrize("codec", [name for name in ("zstd", "lz4") if pa.Codec.is_available(name)])
def test_a_compressed_pack_is_malformed_without_decompression(
    codec: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = stream_message(batch_of([None], [bytes(100_000)]), compression=codec)
    assert len(raw) < 10_000
    monkeypatch.setattr(pa.ipc, "read_record_batch", None)
    with pytest.raises(Malformed, match="compressed"):
        decode_pack(raw, 1)


def test_metadata_of_another_version_is_malformed() -> None:
    raw = stream_message(batch_of([None], [b"a"]), metadata_version=pa.ipc.MetadataVersion.V4)
    with pytest.raises(Malformed, match="version 3"):
        decode_pack(raw, 1)


def test_a_schema_message_is_malformed() -> None:
    raw = bytes(SCHEMA.serialize())
    with pytest.raises(Malformed, match="kind 1"):
        decode_pack(raw, 1)


def test_a_stream_is_malformed() -> None:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, SCHEMA) as writer:
        writer.write_batch(batch_of([None], [b"a"]))
    with pytest.raises(Malformed):
        decode_pack(sink.getvalue(), 1)


@pytest.mark.parametrize(
    "columns",
    [
        [],
        [pa.array([b"a"])],
        [pa.array([b"a"])] * 3,
        [pa.array([None], pa.binary()), pa.array([1])],
        [pa.array([None], pa.binary()), pa.array([b"a"], pa.large_binary())],
        [pa.array([None], pa.binary()), pa.array([[b"a"]])],
        [pa.array([None], pa.binary()), pa.nulls(1)],
        [pa.array([None], pa.binary()), pa.array([b"a"]).dictionary_encode()],
        [pa.array([None], pa.binary()), pa.StructArray.from_arrays([pa.array([b"a"])], ["s"])],
    ],
    ids=range(9),
)
def test_another_schema_is_malformed(columns: list[Any]) -> None:
    batch = pa.RecordBatch.from_arrays(columns, names=[f"c{n}" for n in range(len(columns))])
    with pytest.raises(Malformed):
        decode_pack(octets(batch), 1)


def test_a_dictionary_batch_is_malformed() -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([b"a"]).dictionary_encode()] * 2, names=SCHEMA.names)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    messages = list(pa.ipc.MessageReader.open_stream(sink.getvalue()))
    assert [message.type for message in messages][:2] == ["schema", "dictionary"]
    for message in messages:
        with pytest.raises(Malformed):
            decode_pack(bytes(message.serialize()), 1)


def test_a_null_body_is_malformed() -> None:
    with pytest.raises(Malformed, match="null"):
        decode_pack(octets(batch_of([None, None], [b"a", None])), 2)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        (b"", "cut off"),
        (b"\0\0\0\1", "end"),
        (EMPTY + b"\0", "after"),
        (encode_table({"mtl-count": 1}), "broker"),
        (encode_table({"a": 1, "mtl-x": 1}), "broker"),
        (
            (MAX_TABLE - 3).to_bytes(4, "big")
            + b"\1kx"
            + (MAX_TABLE - 10).to_bytes(4, "big")
            + bytes(MAX_TABLE - 10),
            "prop",
        ),
    ],
)
def test_invalid_or_reserved_properties_in_a_pack_are_malformed(table: bytes, why: str) -> None:
    raw = octets(batch_of([None, encode_table({"a": 1}), table, table], [b"a"] * 4))
    with pytest.raises(Malformed, match=why):
        decode_pack(raw, 4)
    assert decode_pack(raw, 4, check_properties=False).num_rows == 4


def test_properties_of_a_pack_are_bounded_in_total() -> None:
    table = encode_table({"k": bytes(MAX_PACK_PROPERTIES // 10 - 20)})
    assert decode_pack(octets(batch_of([table] * 10, [b""] * 10)), 10).num_rows == 10
    raw = octets(batch_of([table] * 11, [b""] * 11))
    with pytest.raises(Malformed, match="octets of properties"):
        decode_pack(raw, 11)
    assert decode_pack(raw, 11, check_properties=False).num_rows == 11


@pytest.mark.parametrize("broken", [(0, 3, 8), (0, 3, 1 << 30), (0, 8, 7), (-1, 3, 7), (0, 3, -1), (1, 3, 7)])
def test_offsets_outside_of_the_data_are_malformed(broken: tuple[int, int, int]) -> None:
    raw = pack([(None, b"abc"), (None, b"defg")])
    at = raw.index(struct.pack("<iii", 0, 3, 7))
    with pytest.raises(Malformed):
        decode_pack(raw[:at] + struct.pack("<iii", *broken) + raw[at + 12 :], 2)


def test_the_encoding_of_a_slice_has_no_octets_of_adjacent_rows() -> None:
    parent = batch_of(
        [encode_table({"k": "left"}), encode_table({"k": "right"})] * 40, [b"mine", b"theirs"] * 40
    )
    for first in range(80):
        raw = bytes(encode_batch(parent.slice(first, 1)))
        assert (b"mine" in raw) == (b"left" in raw) == (first % 2 == 0)
        assert (b"theirs" in raw) == (b"right" in raw) == (first % 2 == 1)


def test_the_padding_of_arrow_behind_a_slice_is_accepted() -> None:
    parent = batch_of([None] * 9, [b"0123456789"] * 9)
    assert contents_of(decode_pack(octets(parent.slice(3, 2)), 2)) == [(EMPTY, b"0123456789")] * 2


def test_data_outside_of_all_contents_is_malformed() -> None:
    raw = pack([(None, b"a"), (None, bytes(99))])
    at = raw.index(struct.pack("<iii", 0, 1, 100))
    for end, accepted in ((2, False), (36, False), (37, True)):  # up to 63 octets may be padding
        damaged = raw[: at + 8] + struct.pack("<i", end) + raw[at + 12 :]
        if accepted:
            assert contents_of(decode_pack(damaged, 2)) == [(EMPTY, b"a"), (EMPTY, bytes(end - 1))]
        else:
            with pytest.raises(Malformed, match="no content"):
                decode_pack(damaged, 2)


def test_buffers_larger_than_their_contents_are_cut() -> None:
    offsets = pa.py_buffer(struct.pack("=iiii", 2, 5, 9, 77))
    body = pa.Array.from_buffers(pa.binary(), 2, [None, offsets, pa.py_buffer(b"..abcdefg......")])
    raw = encode_batch(pa.RecordBatch.from_arrays([pa.nulls(2, pa.binary()), body], schema=SCHEMA))
    assert contents_of(decode_pack(raw, 2)) == [(EMPTY, b"abc"), (EMPTY, b"defg")]


# --- octets of a peer ---------------------------------------------------------------------------------------


def read(raw: bytes, count: int) -> None:
    """Read all contents, as the broker and a reader do."""
    with suppress(Malformed):
        for properties, body in unpack(decode_pack(raw, count)):
            assert len(properties) >= 4
            assert bytes(body) == body


@given(st.binary(max_size=300), st.integers(0, 3))
def test_any_octets_are_a_pack_or_malformed(raw: bytes, count: int) -> None:
    read(raw, count)
    read(struct.pack("<II", 0xFFFF_FFFF, len(raw) // 8 * 8) + raw, count)


@given(CONTENTS, st.data())
def test_a_damaged_pack_is_a_pack_or_malformed(contents: Contents, data: st.DataObject) -> None:
    raw = bytearray(pack(contents))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    read(bytes(raw), len(contents))


WORDS = [b"\0" * 4, b"\xff" * 4, b"\0\0\0\x80", b"\xff\xff\xff\x7f", b"\1\0\0\0", b"\x08\0\0\0"]


@pytest.mark.parametrize("contents", [THREE, [(None, b"abc")]])
def test_any_changed_word_of_a_pack_is_safe_to_read(contents: Contents) -> None:
    raw = pack(contents)
    for at in range(0, len(raw) - 3, 2):
        for word in WORDS:
            read(raw[:at] + word + raw[at + 4 :], len(contents))


@given(st.lists(st.binary(max_size=70), min_size=1, max_size=70))
def test_contents_without_properties_have_the_encoding_of_arrow(bodies: list[bytes]) -> None:
    """Octet by octet: this encoding does not call Arrow."""
    columns = [pa.nulls(len(bodies), pa.binary()), pa.array(bodies, pa.binary())]
    by_arrow = bytes(encode_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA)))
    assert bytes(encode_pack(bodies)) == by_arrow
    assert bytes(encode_pack([memoryview(x) for x in bodies], [EMPTY] * len(bodies))) == by_arrow


@pytest.mark.parametrize("count", [127, 128, 1_000, 9_999, 10_000])
def test_many_contents_have_the_encoding_of_arrow(count: int) -> None:
    bodies = [bytes(n % 5) for n in range(count)]
    columns = [pa.nulls(count, pa.binary()), pa.array(bodies, pa.binary())]
    assert encode_pack(bodies) == bytes(encode_batch(pa.RecordBatch.from_arrays(columns, schema=SCHEMA)))
