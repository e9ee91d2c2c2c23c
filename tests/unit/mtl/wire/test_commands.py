from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mtl.errors import FieldError, Malformed
from mtl.limits import MAX_PACK_CONTENTS
from mtl.wire.commands import (
    Command,
    Confirm,
    Content,
    Dismiss,
    Lease,
    Ping,
    Pong,
    Reject,
    Response,
    Summon,
    content_headers,
    content_run,
    content_tail,
    decode,
    delivery_timestamp,
    encode,
    encode_contents,
    packed_count,
    packed_properties,
    reserved,
)
from mtl.wire.fields import EMPTY, encode_table
from mtl.wire.limits import MAX_HEADER, REJECT_WORDS

GOLDEN = [
    (Lease(1, "abcd"), "0100000000000000010461626364", ""),
    (Response(1, 200), "020000000000000001", "323030"),
    (Summon(2, "resource"), "030000000000000002087265736f75726365", ""),
    (Dismiss(2, "resource"), "040000000000000002087265736f75726365", ""),
    (Content(7, "resource", EMPTY, b"hi"), "050000000000000007087265736f7572636500000000", "6869"),
    (
        Content(7, "resource", encode_table({"foo": "bar"}), b"hi"),
        "050000000000000007087265736f757263650000000c03666f6f5300000003626172",
        "6869",
    ),
    (Content(1, "", EMPTY, b""), "0500000000000000010000000000", ""),
    (
        Content(9, "é", packed_properties(1000), b"\0"),
        "05000000000000000902c3a900000013096d746c2d636f756e746c00000000000003e8",
        "00",
    ),
    (Confirm(7, True), "06000000000000000701", ""),
    (Confirm((1 << 64) - 1, False), "06ffffffffffffffff00", ""),
    (Reject(7, False, True), "0700000000000000070001", ""),
    (Reject(7, False, False, "größe"), "0700000000000000070000", "6772c3b6c39f65"),
    (Ping(), "08", ""),
    (Pong(), "09", ""),
    (Pong(1234), "09", "31323334"),
]
"""Every command, and its two frames in hex: the wire format, which never changes."""

U64 = st.integers(0, (1 << 64) - 1)
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=60)
PROPERTIES = st.dictionaries(
    NAMES.filter(lambda n: len(n.encode()) <= 128), st.integers(0, 9) | st.text(), max_size=3
)
COMMANDS: st.SearchStrategy[Command] = (
    st.builds(Lease, U64, NAMES)
    | st.builds(Response, U64, st.integers(0, 999))
    | st.builds(Summon, U64, NAMES)
    | st.builds(Dismiss, U64, NAMES)
    | st.builds(Content, U64, NAMES, PROPERTIES.map(encode_table), st.binary())
    | st.builds(Confirm, U64, st.booleans())
    | st.builds(Reject, U64, st.booleans(), st.booleans(), st.text(max_size=REJECT_WORDS // 4))
    | st.just(Ping())
    | st.builds(Pong, st.none() | st.integers(0, 2**64 - 1))
)


@pytest.mark.requirement(
    "MTL-57",
    "MTL-58",
    "MTL-59",
    "MTL-61",
    "MTL-63",
    "MTL-67",
    "MTL-73",
    "MTL-78",
    "MTL-80",
    "MTL-89",
    "MTL-94",
)
@pytest.mark.requirement("MTL-99", "MTL-101", "MTL-106", "MTL-108")
@pytest.mark.parametrize(("command", "header", "body"), GOLDEN)
def test_golden_vectors_are_encoded_and_decoded(command: Command, header: str, body: str) -> None:
    frames = bytes.fromhex(header), bytes.fromhex(body)
    assert encode(command) == frames
    assert decode(*frames) == command


@pytest.mark.requirement("MTL-08", "MTL-57")
@given(COMMANDS)
def test_an_encoded_command_is_decoded(command: Command) -> None:
    header, body = encode(command)
    back = decode(memoryview(header), memoryview(body))
    assert back == command
    assert type(back) is type(command)


def test_the_body_of_a_content_is_not_copied() -> None:
    body = bytearray(b"hello")
    content = decode(*encode(Content(1, "a", EMPTY, body)))
    assert isinstance(content, Content)
    assert content.body is body


def test_the_body_of_a_confirm_names_the_resource_of_a_holder() -> None:
    confirm = Confirm(7, multiple=True, resource="größe")
    header, body = encode(confirm)
    assert header == encode(Confirm(7, multiple=True))[0]
    assert (bytes(body), decode(header, body)) == ("größe".encode(), confirm)
    assert decode(header, b"\xff") == Confirm(7, multiple=True)


@pytest.mark.requirement("MTL-61", "MTL-67", "MTL-73", "MTL-89", "MTL-94", "MTL-99", "MTL-101")
@pytest.mark.parametrize(("command", "header", "body"), [row for row in GOLDEN if not row[2]])
def test_an_unused_body_is_ignored(command: Command, header: str, body: str) -> None:
    if not isinstance(command, Content | Confirm | Reject):
        assert decode(bytes.fromhex(header), b"whatever") == command


# --- malformed commands -------------------------------------------------------------------------------------


FIELDS: list[tuple[int, bytes, list[tuple[str, int]]]] = [
    (1, b"\1", [("number", 8), ("name", 1)]),
    (2, b"\2", [("number", 8)]),
    (3, b"\3", [("number", 8), ("name", 1)]),
    (4, b"\4", [("number", 8), ("name", 1)]),
    (5, b"\5", [("number", 8), ("name", 1), ("table", 4)]),
    (6, b"\6", [("number", 8), ("flag", 1)]),
    (7, b"\7", [("number", 8), ("flag", 1), ("flag", 1)]),
    (8, b"\x08", []),
    (9, b"\x09", []),
]
"""The fields of each type, by the document: their kinds, and the octets of their empty or smallest values."""


@pytest.mark.requirement("MTL-59")
@pytest.mark.parametrize(("kind", "header", "fields"), FIELDS)
def test_each_type_has_its_fields_and_no_others(
    kind: int, header: bytes, fields: list[tuple[str, int]]
) -> None:
    """All of them have to be present, in their order and encoding, and none of another type."""
    body = b"200" if kind == 2 else b""
    whole = header + bytes(sum(size for _, size in fields))
    assert encode(decode(whole, body)) == (whole, body)
    ends = {len(header) + sum(size for _, size in fields[:n]) for n in range(len(fields))}
    optional = {10} if kind == 5 else set()  # properties may be left out (PROTOCOL.md 1)
    for end in ends - optional:
        with pytest.raises(Malformed):
            decode(whole[:end], body)
    for _, size in {("flag", 1), ("number", 8), ("table", 4)}:  # a field of another type, after the last one
        with pytest.raises(Malformed):
            decode(whole + bytes(size), body)
    for at, (field, _) in enumerate(fields):
        if field == "flag":
            place = len(header) + sum(size for _, size in fields[:at])
            with pytest.raises(Malformed):
                decode(whole[:place] + b"\2" + whole[place + 1 :], body)


@pytest.mark.requirement("MTL-59", "MTL-111")
@pytest.mark.parametrize(("command", "header", "body"), GOLDEN)
def test_a_truncated_or_extended_header_is_malformed(command: Command, header: str, body: str) -> None:
    frames = bytes.fromhex(header), bytes.fromhex(body)
    tableless = 10 + frames[0][9] if isinstance(command, Content) else None  # see below
    for end in set(range(len(frames[0]))) - {tableless}:
        with pytest.raises(Malformed):
            decode(frames[0][:end], frames[1])
    with pytest.raises(Malformed):
        decode(frames[0] + b"\0", frames[1])


@pytest.mark.requirement("MTL-109")
def test_a_content_without_a_table_has_no_properties() -> None:
    """The RFC leaves the table "to be defined": a client of the RFC alone sends none."""
    header, body = encode(Content(7, "resource", EMPTY, b"hi"))
    assert decode(header[:-4], body) == Content(7, "resource", EMPTY, b"hi")


@pytest.mark.requirement("MTL-111")
@pytest.mark.parametrize("kind", [0, 10, 128, 255])
def test_an_unknown_type_is_malformed(kind: int) -> None:
    with pytest.raises(Malformed, match="type"):
        decode(bytes((kind,)) + bytes(8), b"")


@pytest.mark.requirement("MTL-93", "MTL-98", "MTL-108")
@pytest.mark.parametrize(
    "header", ["06000000000000000702", "0700000000000000070200", "07000000000000000701ff"]
)
def test_a_boolean_is_0_or_1(header: str) -> None:
    with pytest.raises(Malformed, match="Boolean"):
        decode(bytes.fromhex(header), b"")


@pytest.mark.requirement("MTL-63")
@pytest.mark.parametrize(
    "code", [b"", b"20", b"2000", b"20x", b" 20", b"-20", b"+20", "٢٠٠".encode(), b"2\0\0"]
)
def test_a_response_has_three_digits(code: bytes) -> None:
    with pytest.raises(Malformed, match="three-digit"):
        decode(bytes.fromhex("020000000000000001"), code)


@pytest.mark.requirement("MTL-63")
def test_a_response_with_another_code_cannot_be_sent() -> None:
    assert [bytes(encode(Response(1, code))[1]) for code in (0, 999)] == [b"000", b"999"]
    for code in (-1, 1_000):
        with pytest.raises(FieldError, match="three-digit"):
            encode(Response(1, code))


@pytest.mark.requirement("MTL-105")
@pytest.mark.parametrize("name", [b"\0", b"a\n", b"\x7f", b"\xc2\x80", b"\xff", b"\xc3"])
@pytest.mark.parametrize(("kind", "rest"), [(1, b""), (3, b""), (4, b""), (5, EMPTY)])
def test_a_name_is_printable_utf8(name: bytes, kind: int, rest: bytes) -> None:
    with pytest.raises(Malformed):
        decode(bytes((kind,)) + bytes(8) + bytes((len(name),)) + name + rest, b"")


@pytest.mark.requirement("MTL-109", "MTL-111")
@pytest.mark.parametrize("table", ["000000", "00000001", "0000000000", "000000030161ff"])
def test_the_properties_are_a_table(table: str) -> None:
    with pytest.raises(Malformed):
        decode(bytes.fromhex("0500000000000000010161" + table), b"")


def test_a_header_has_a_largest_size() -> None:
    with pytest.raises(Malformed, match="octets"):
        decode(b"\x05" + bytes(MAX_HEADER), b"")


@given(
    st.binary(max_size=64) | st.builds(lambda k, r: bytes((k,)) + r, st.integers(0, 10), st.binary()),
    st.binary(),
)
@example(b"", b"")
def test_any_octets_are_a_command_or_malformed(header: bytes, body: bytes) -> None:
    try:
        command = decode(header, body)
    except Malformed:
        return
    again = encode(command)
    assert again[0] == header  # there is one encoding of every command
    assert decode(*again) == command


@given(COMMANDS, st.data())
def test_a_damaged_header_is_a_command_or_malformed(command: Command, data: st.DataObject) -> None:
    header, body = encode(command)
    raw = bytearray(header)
    raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(Malformed):
        decode(raw, body)


@pytest.mark.parametrize(
    "command",
    [
        Lease(-1, "a"),
        Lease(1 << 64, "a"),
        Summon(1, "é" * 128),
        Summon(1, "a\0"),
        Content(1, "é" * 128, EMPTY, b""),
        Content(1, "\n", EMPTY, b""),
        Content(1, "\ud800", EMPTY, b""),
        Content(-1, "a", EMPTY, b""),
        Confirm(1 << 64, True),
        Response(1, 1000),
        Response(1, -1),
    ],
)
def test_a_command_without_encoding_is_a_field_error(command: Command) -> None:
    with pytest.raises(FieldError):
        encode(command)


# --- the broker's own properties ----------------------------------------------------------------------------


@given(st.integers(1, MAX_PACK_CONTENTS), st.none() | st.integers(0, (1 << 63) - 1))
def test_properties_of_a_pack_have_count_and_timestamp(count: int, timestamp: int | None) -> None:
    properties = packed_properties(count, timestamp)
    table = {"mtl-count": count} | ({} if timestamp is None else {"mtl-timestamp": timestamp})
    assert properties == encode_table(table)
    assert packed_count(properties) == count
    assert delivery_timestamp(properties) == timestamp
    assert decode(*encode(Content(1, "a", properties, b""))) == Content(1, "a", properties, b"")


@pytest.mark.parametrize(
    ("table", "count", "timestamp"),
    [
        ({}, None, None),
        ({"a": "mtl-count", "b": "mtl-timestamp"}, None, None),
        ({"mtl-timestamp": 5}, None, 5),
        ({"mtl-timestamp": 5, "mtl-count": 2}, 2, 5),
        ({"a": 1, "mtl-count": 2}, 2, None),
        ({"mtl-timestamp": "soon"}, None, None),
    ],
)
def test_count_and_timestamp_of_other_tables(
    table: dict[str, Any], count: int | None, timestamp: int | None
) -> None:
    properties = encode_table(table)
    assert packed_count(properties) == count
    assert delivery_timestamp(properties) == timestamp


@pytest.mark.parametrize("count", [0, -1, True, "3", 1.0, None, [1]])
def test_a_count_that_is_not_a_positive_number_is_malformed(count: Any) -> None:
    with pytest.raises(Malformed, match="mtl-count"):
        packed_count(encode_table({"mtl-count": count}))


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ({}, False),
        ({"mtl": 1, "a": "mtl-count", "xmtl-a": 1, "MTL-a": 1, "deep": {"mtl-a": 1}}, False),
        ({"a": 1, "mtl-": 1}, True),
        ({"mtl-count": 1}, True),
    ],
)
def test_reserved_names(table: dict[str, Any], expected: bool) -> None:
    assert reserved(encode_table(table)) is expected


@given(st.text(max_size=20).filter(str.isprintable), st.integers(0, (1 << 64) - 3), st.integers(0, 3))
def test_headers_of_consecutive_contents_equal_the_single_ones(resource: str, first: int, count: int) -> None:
    properties = encode_table({"k": 1})
    made = content_headers(content_tail(resource, properties), first, count)
    assert made == [encode(Content(n, resource, properties, b""))[0] for n in range(first, first + count)]


@given(
    st.lists(
        st.tuples(
            st.integers(0, (1 << 64) - 1),
            st.sampled_from("ab"),
            st.sampled_from([EMPTY, packed_properties(3)]),
        )
    )
)
def test_headers_of_many_contents_equal_the_single_ones(fields: list[tuple[int, str, bytes]]) -> None:
    contents = [Content(*field, b"") for field in fields]
    assert encode_contents(contents) == [encode(content)[0] for content in contents]


def test_an_invalid_resource_name_is_a_field_error() -> None:
    with pytest.raises(FieldError):
        encode_contents([Content(1, "a", EMPTY, b""), Content(2, "\n", EMPTY, b"")])


@given(st.integers(0, 300), st.sampled_from([1, 7, (1 << 64) - 130]), st.integers(0, 299))
def test_a_run_of_headers_ends_at_a_different_header(count: int, first: int, odd: int) -> None:
    tail = content_tail("a", EMPTY)
    headers = content_headers(tail, first, min(count, (1 << 64) - first))
    assert content_run([b"\x08", *headers], 1, tail, first) == len(headers)
    assert content_run(headers, 0, tail, first, odd) == min(odd, len(headers))
    for other in (Ping(), Content(first - 1, "a", EMPTY, b""), Content(first, "b", EMPTY, b"")):
        broken = [*headers[:odd], encode(other)[0], *headers[odd:]]
        assert content_run(broken, 0, tail, first) == min(odd, len(headers))


@pytest.mark.parametrize("body", [b"x", b"-1", b"1 ", b"1" * 21, "\u0661".encode()])
def test_other_octets_in_a_pong_are_ignored(body: bytes) -> None:
    assert decode(b"\x09", body) == Pong()


def test_the_reason_of_a_reject_is_cut_and_invalid_utf8_dropped() -> None:
    header, body = encode(Reject(1, False, False, "ü" * REJECT_WORDS))
    assert len(body) == REJECT_WORDS - 1
    assert decode(header, body) == Reject(1, False, False, "ü" * (REJECT_WORDS // 2))
    assert decode(header, b"\xffa" * REJECT_WORDS) == Reject(1, False, False, "a" * (REJECT_WORDS // 2))
