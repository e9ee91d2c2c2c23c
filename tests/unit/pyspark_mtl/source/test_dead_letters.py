from __future__ import annotations

import pyarrow as pa
import pytest

from mtl.errors import Fenced
from mtl.limits import MAX_TABLE
from mtl.wire.fields import Value, encode_table
from pyspark_mtl.limits import DEAD_LETTER_PATH, DEAD_LETTER_REASON, FENCED_DEAD_LETTERS
from pyspark_mtl.rows.typed import BadContent
from pyspark_mtl.source.dead_letters import DeadLetterWriter, properties, writer_name
from pyspark_mtl.source.offsets import OffsetRange
from tests.support.fake_client import DEFAULT, FakeClient, FakeLog
from tests.support.typed import shape

RANGE = OffsetRange("a", "i1", 1, 11)
SHAPE = shape([("id", pa.int64())], dead_letter="dead")
ORIGIN = {"dead-letter-resource": "a", "dead-letter-incarnation": "i1"}


def letter(sequence: int, table: bytes | None = None) -> BadContent:
    return BadContent(sequence, str(sequence).encode(), table, "no JSON")


def letters(target: str | None = "dead") -> DeadLetterWriter:
    return DeadLetterWriter(DEFAULT, RANGE, shape([("id", pa.int64())], dead_letter=target))


def test_a_dead_letter_has_its_origin_in_properties() -> None:
    bad = letter(7, encode_table({"k": "v", "dead-letter-sequence": 3}))
    assert properties(bad, RANGE) == {
        "k": "v", **ORIGIN, "dead-letter-sequence": 7, "dead-letter-reason": "no JSON",
    }  # fmt: skip


def test_properties_and_a_long_reason_are_cut_to_fit() -> None:
    bad = BadContent(7, b"", encode_table({"k": "v" * (MAX_TABLE - 20)}), "x" * 10_000)
    assert properties(bad, RANGE) == {
        **ORIGIN, "dead-letter-sequence": 7, "dead-letter-reason": "x" * DEAD_LETTER_REASON,
    }  # fmt: skip


def test_attempts_of_a_task_and_only_these_share_a_writer_name() -> None:
    assert writer_name(RANGE, SHAPE) == writer_name(OffsetRange("a", "i1", 1, 11), SHAPE)
    others = [
        (OffsetRange("b", "i1", 1, 11), SHAPE),
        (OffsetRange("a", "i2", 1, 11), SHAPE),
        (OffsetRange("a", "i1", 2, 11), SHAPE),
        (OffsetRange("a", "i1", 1, 12), SHAPE),
        (RANGE, shape([("id", pa.int32())], dead_letter="dead")),
        (RANGE, shape([("id", pa.int64())], "msgpack", dead_letter="dead")),
    ]
    assert len({writer_name(*task) for task in [(RANGE, SHAPE), *others]}) == len(others) + 1


def test_the_writer_of_a_user_has_its_name_as_prefix(client: FakeClient) -> None:
    client.user = "etl"
    with letters() as found:
        found.write([letter(1)])
    assert client.writers[0].name == f"etl.{writer_name(RANGE, SHAPE)}"


def test_no_writer_is_opened_without_dead_letters(client: FakeClient) -> None:
    with letters(None) as to_nowhere, letters() as of_nothing:
        to_nowhere.write([letter(1)])
        of_nothing.write([])
    assert client.writers == []


def test_the_dead_letter_resource_is_created_if_missing(client: FakeClient) -> None:
    with letters() as found:
        found.write([letter(1)])
    assert client.logs["dead"].bodies == [b"1"]
    assert [writer.ended for writer in client.writers] == ["abandoned"]


def test_a_body_that_was_a_dead_letter_of_the_target_is_not_written_to_it_again(client: FakeClient) -> None:
    """As in two reads of which each reads the dead letters of the other."""
    returned = encode_table({"dead-letter-resource": "dead"})
    of_another = encode_table({"dead-letter-resource": "orders"})
    with letters() as found:
        found.write([letter(1), letter(2, returned), letter(3, of_another)])
        found.write([letter(4, returned)])
    assert client.logs["dead"].bodies == [b"1", b"3"]


@pytest.mark.parametrize("reads", [1, 2, 3, 5, DEAD_LETTER_PATH])
def test_a_body_does_not_go_round_through_reads_of_each_others_dead_letters(
    client: FakeClient, reads: int
) -> None:
    """Read n has the dead letters of read n - 1 as its resource, and the first one those of the last."""
    for read in range(reads):
        client.logs[f"r{read}"] = FakeLog()
    table: bytes | None = encode_table({"k": "v"})
    targets = [f"r{(read + 1) % reads}" for read in range(reads)]
    for read, target in enumerate(targets):
        contents = OffsetRange(f"r{read}", "i1", 1, 11)
        with DeadLetterWriter(DEFAULT, contents, shape([("id", pa.int64())], dead_letter=target)) as found:
            found.write([letter(7, table)])
        written = client.logs[target].bodies
        if read < reads - 1:
            assert written == [b"7"]
            table = encode_table(client.letters[-1])
            assert client.letters[-1]["k"] == "v"
        else:
            assert written == ([] if reads > 1 else [b"7"])  # options refuse a read of its own dead letters


@pytest.mark.parametrize("path", [7, "no JSON", "{}", '["a", 7]'])
def test_a_foreign_path_is_ignored(client: FakeClient, path: Value) -> None:
    with letters() as found:
        found.write([letter(1, encode_table({"dead-letter-resource": "x", "dead-letter-path": path}))])
    assert client.logs["dead"].bodies == [b"1"]


def test_another_attempt_continues_after_written_dead_letters(client: FakeClient) -> None:
    with letters() as first:
        first.write([letter(1), letter(2)])
    with letters() as second:
        second.write([letter(1)])
        second.write([letter(2), letter(3)])
        second.write([letter(4)])
    assert client.logs["dead"].bodies == [b"1", b"2", b"3", b"4"]
    assert [letter["dead-letter-sequence"] for letter in client.letters] == [1, 2, 3, 4]


def test_a_fenced_writer_is_opened_again(client: FakeClient) -> None:
    client.logs["dead"] = FakeLog()
    with letters() as found:
        found.write([letter(1)])
        client.fences = 2
        found.write([letter(2), letter(3)])
    assert client.logs["dead"].bodies == [b"1", b"2", b"3"]


def test_a_repeatedly_fenced_writer_is_an_error(client: FakeClient) -> None:
    client.logs["dead"] = FakeLog()
    client.fences = FENCED_DEAD_LETTERS
    with letters() as found, pytest.raises(Fenced):
        found.write([letter(1)])
    assert client.logs["dead"].bodies == []
