from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.doors.limits import MBWS_WINDOW
from mtl.doors.mbws.connection_records import (
    ClaimRecord,
    ConnectionRecord,
    decode,
    digest,
    encode,
    record_of,
    restore,
)
from mtl.doors.mbws.recovery import Client, KnownConnection
from mtl.errors import Malformed

GOLDEN = (
    (Path(__file__).parents[4] / "golden" / "doors" / "mbws-connections-v1.jsonl").read_bytes().splitlines()
)
ALICE = Client("https://example.org", "alice")


def test_golden_records_are_decoded_and_encoded() -> None:
    records = [decode(line) for line in GOLDEN]
    assert [encode(record) for record in records] == GOLDEN
    record, _, claim = records
    assert isinstance(record, ConnectionRecord)
    assert record.client == ALICE
    assert record.connection == digest("urn:uuid:1")
    assert claim == ClaimRecord(connection=record.connection, claim="7c1f")


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3)), max_size=50), st.integers(0, 50))
def test_a_stored_connection_is_restored(sent: list[tuple[str, int]], acknowledged: int) -> None:
    connection, last = KnownConnection("c", ALICE, {"a": "earliest", "b": 1}), {"a": 0, "b": 0}
    for address, step in sent:
        last[address] += step
        connection.sent(address, [last[address]])
    connection.reading["b"].incarnation = "i"
    connection.outgoing.acknowledged(min(acknowledged, len(sent)))
    record = decode(encode(record_of(connection, 7, 1.0)))
    assert isinstance(record, ConnectionRecord)
    assert (record.client, record.received, record.until) == (ALICE, 7, 1.0)
    again = KnownConnection("c", ALICE, {})
    restore(record, again)
    assert again.reading == connection.reading
    assert again.outgoing.acked == connection.outgoing.acked
    assert again.outgoing.entries == connection.outgoing.entries


def test_consecutive_contents_are_stored_as_one_entry() -> None:
    connection = KnownConnection("c", ALICE, {"a": 1})
    connection.sent("a", range(1, MBWS_WINDOW + 1))
    assert len(record_of(connection, 0, 0.0).sent) == 1


@pytest.mark.parametrize(
    ("was", "wrong"),
    [
        (b'"kept.1"', b'"kept.2"'),
        (b'"received":5', b'"received":-1'),
        (b"[[0,4,7],", b"[[2,4,7],"),
        (b"[[0,4,7],", b"[[0,4,1001],"),
        (b"[[0,4,7],", b"[[0,4,1000],"),
        (b"[[0,4,7],", b"[[0,0,7],"),
        (b"}", b""),
        (b"alice", b"\xff"),
        (b"{", b'{"x":' + b"[" * 10_000),
    ],
)
def test_an_invalid_record_is_refused(was: bytes, wrong: bytes) -> None:
    assert was in GOLDEN[0]
    with pytest.raises(Malformed, match="not a record of a connection"):
        decode(GOLDEN[0].replace(was, wrong, 1))
