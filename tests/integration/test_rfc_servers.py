"""The client with servers of RFC 11 alone, in any profile, with and without confirmation."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest

import mtl
from mtl.errors import ContentRefused, OptionError
from mtl.wire.fields import encode_table
from tests.support.minimal_server import Answer, MinimalServer, Received

NUMBERS = {
    "from-0": [0, 1, 2, 3],
    "repeated": [7, 7, 7, 7],
    "gaps": [1, 5, 6, 1000],
    "falling": [9, 8, 7, 6],
    "wrapping": [2**64 - 2, 2**64 - 1, 0, 1],
    "all-0": [0, 0, 0, 0],
}


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


# --- reading ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-80", "MTL-85")
@pytest.mark.parametrize("profile", ["test", "log", "queue", "news"])
@pytest.mark.parametrize("numbers", NUMBERS.values(), ids=NUMBERS)
def test_without_confirmation_numbers_are_ignored(profile: str, numbers: list[int]) -> None:
    with (
        MinimalServer(profiles=(profile,)) as server,
        mtl.connect(server.endpoint, profile=profile) as connection,
        connection.reader("resource", confirm="none") as reader,
    ):
        assert reader.next(timeout=0.1) is None
        server.send(numbers)
        received = [reader.next(timeout=10) for _ in numbers]
        assert [x.body for x in received if x is not None] == [b"0", b"1", b"2", b"3"]
        assert [x.sequence for x in received if x is not None] == numbers
        assert reader.position is None
        assert server.answers == []


@pytest.mark.requirement("MTL-86", "MTL-87", "MTL-89", "MTL-91")
@pytest.mark.parametrize("profile", ["log", "queue", "news"])
@pytest.mark.parametrize("numbers", NUMBERS.values(), ids=NUMBERS)
def test_confirms_have_the_numbers_of_the_server(profile: str, numbers: list[int]) -> None:
    with (
        MinimalServer(profiles=(profile,), full=True) as server,
        mtl.connect(server.endpoint, profile=profile) as connection,
        connection.reader("resource") as reader,
    ):
        assert reader.next(timeout=0.1) is None
        server.send(numbers)
        for place in range(4):
            content = reader.next(timeout=10)
            assert content is not None
            assert (content.sequence, content.body) == (numbers[place], b"%d" % place)
        assert reader.next(timeout=0.01) is None
        until(lambda: len(server.answers) >= 4)
        assert server.answers == [Answer(6, number) for number in numbers]


@pytest.mark.requirement("MTL-88", "MTL-94", "MTL-96")
def test_each_content_may_be_confirmed_rejected_or_recycled() -> None:
    with (
        MinimalServer(profiles=("news",), full=True) as server,
        mtl.connect(server.endpoint, profile="news") as connection,
        connection.consumer(["resource"]) as consumer,
    ):
        assert consumer.next(timeout=0.1) is None
        server.send([5, 5, 0, 3], carried="")
        contents = [consumer.next(timeout=10) for _ in range(4)]
        assert [x.resource for x in contents if x is not None] == ["resource"] * 4
        first, second, third, fourth = [x for x in contents if x is not None]
        fourth.confirm()
        second.reject()
        first.reject(recycle=True)
        third.confirm()
        third.confirm()
        until(lambda: len(server.answers) >= 4)
        assert server.answers == [Answer(6, 3), Answer(7, 5), Answer(7, 5, recycle=True), Answer(6, 0)]


@pytest.mark.requirement("MTL-109")
@pytest.mark.parametrize("table", [b"", b"\0\0\0\0", encode_table({"n": 7})], ids=["none", "empty", "one"])
def test_contents_with_and_without_a_field_table_are_read(table: bytes) -> None:
    with (
        MinimalServer() as server,
        mtl.connect(server.endpoint, profile="test") as connection,
        connection.reader("resource") as reader,
    ):
        assert reader.next(timeout=0.1) is None
        server.send([1], table=table)
        content = reader.next(timeout=10)
        assert content is not None
        assert content.properties == ({"n": 7} if len(table) > 4 else {})


# --- writing ------------------------------------------------------------------------------------------------


def multiple_at_last(content: Received) -> Sequence[Answer]:
    return [Answer(6, 10, multiple=True)] if content.number == 10 else []


def backwards(content: Received) -> Sequence[Answer]:
    return [Answer(6, number) for number in range(10, 0, -1)] if content.number == 10 else []


@pytest.mark.requirement("MTL-87", "MTL-90", "MTL-91")
@pytest.mark.parametrize("answer", [multiple_at_last, backwards])
def test_a_writer_follows_single_and_multiple_confirms(
    answer: Callable[[Received], Sequence[Answer]],
) -> None:
    with (
        MinimalServer(profiles=("log",), full=True, answer=answer) as server,
        mtl.connect(server.endpoint, profile="log") as connection,
        connection.writer("resource") as writer,
    ):
        for number in range(10):
            writer.send(b"%d" % number)
        writer.flush(timeout=10)
        assert [x.body for x in server.received] == [b"%d" % n for n in range(10)]
        assert {name for name, _ in server.requests} <= {
            "connection.open",
            "connection.profile",
            "connection.writer",
        }
    assert server.requests[-1][0] == "connection.writer", (
        "closing asks for nothing that the RFC does not have"
    )


class Recycling:
    """Recycles some contents once, and confirms the others and the second attempt."""

    def __init__(self, *back: Answer) -> None:
        self.back = list(back)
        self.held = {n for answer in back for n in ([answer.number] if not answer.multiple else range(1, 6))}

    def __call__(self, content: Received) -> Sequence[Answer]:
        if content.number == 5 and self.back:
            back, self.back = self.back, []
            return [*back, *(() if 5 in self.held else [Answer(6, 5)])]
        if self.back and content.number in self.held:
            return []
        return [Answer(6, content.number)]


@pytest.mark.requirement("MTL-95", "MTL-96")
@pytest.mark.parametrize(
    ("back", "again"),
    [
        ([Answer(7, 3, recycle=True)], [3]),
        ([Answer(7, 2, recycle=True), Answer(7, 4, recycle=True)], [2, 4]),
        ([Answer(7, 5, multiple=True, recycle=True)], [1, 2, 3, 4, 5]),
    ],
    ids=["one", "two", "multiple"],
)
def test_only_recycled_contents_are_resent(back: list[Answer], again: list[int]) -> None:
    with (
        MinimalServer(profiles=("news",), full=True, answer=Recycling(*back)) as server,
        mtl.connect(server.endpoint, profile="news") as connection,
        connection.writer("resource") as writer,
    ):
        for number in range(1, 9):
            writer.send(b"%d" % number)
        writer.flush(timeout=10)
        numbers = [x.number for x in server.received]
        assert sorted(numbers) == sorted([*range(1, 9), *again])
        assert all(x.body == b"%d" % x.number for x in server.received)


@pytest.mark.requirement("MTL-88", "MTL-95")
def test_a_rejected_content_is_reported_and_not_resent() -> None:
    def answer(content: Received) -> Sequence[Answer]:
        return [Answer(7 if content.number == 2 else 6, content.number)]

    with (
        MinimalServer(profiles=("news",), full=True, answer=answer) as server,
        mtl.connect(server.endpoint, profile="news") as connection,
    ):
        writer = connection.writer("resource")
        for number in range(3):
            writer.send(b"%d" % number)
        with pytest.raises(ContentRefused):
            writer.flush(timeout=10)
        writer.flush(timeout=10)
        writer.close()
        assert [x.number for x in server.received] == [1, 2, 3]


def test_features_missing_in_such_a_server_are_errors_with_a_reason() -> None:
    with (
        MinimalServer(profiles=("log",), full=True) as server,
        mtl.connect(server.endpoint, profile="log") as connection,
    ):
        for options in ({"start": "earliest"}, {"group": "g"}, {"packed": True}, {"until": 5}):
            with pytest.raises(OptionError, match="RFC 11 only"):
                connection.reader("resource", **options)
        for options in ({"name": "n"}, {"packed": True}):
            with pytest.raises(OptionError, match="RFC 11 only"):
                connection.writer("resource", **options)
        with pytest.raises(OptionError, match="RFC 11 only"):
            connection.consumer(["resource"], queue="q")
