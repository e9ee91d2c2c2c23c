"""Control requests as frames, List, Describe, Locate. Each class of requests has its own module of tests."""

from __future__ import annotations

import json

import pytest

from mtl.errors import DataLoss
from mtl.wire import control as w
from tests.support.core import START_US, Client, Rig

OPEN = b'{"protocol": {"name": "MTL", "version": 1}}'


# --- frames -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-50", "MTL-51")
@pytest.mark.parametrize(
    "frames",
    [
        (b"Connection.Open",),
        (b"Connection.Open", OPEN, b""),
        (),
        (b"Connection.Open", b"no JSON"),
        (b"Connection.Open", b""),
        (b"No.Such", b"no JSON"),
        (b"\xff", OPEN),
        (b"Connection.Open", b'"\xff"'),
    ],
)
def test_ill_formed_requests_are_dropped_without_reply_and_counted(
    rig: Rig, frames: tuple[bytes, ...]
) -> None:
    assert rig.control(b"id", b"", *frames) == []
    assert rig.broker.statistics()["malformed-requests"] == 1


@pytest.mark.parametrize("frames", [(b"id",), (b"id", b"Connection.Open", OPEN)])
def test_a_message_without_delimiter_is_dropped(rig: Rig, frames: tuple[bytes, ...]) -> None:
    assert rig.control(*frames) == []


@pytest.mark.requirement("MTL-16", "MTL-20", "MTL-113")
@pytest.mark.parametrize("envelope", [(b"",), (b"1234", b""), (b"a", b"b", b"c", b"")])
def test_the_reply_has_the_envelope_of_the_request(rig: Rig, envelope: tuple[bytes, ...]) -> None:
    (reply,) = rig.control(b"id", *envelope, b"Connection.Open", OPEN)
    assert reply[:-2] == (b"id", *envelope)
    assert reply[-2] == b"201"
    assert json.loads(reply[-1])["status"] == "Ready"


@pytest.mark.requirement("MTL-15", "MTL-17", "MTL-18", "MTL-19", "MTL-09")
@pytest.mark.parametrize("name", [b"Connection.Open", b"connection.open", b"CONNECTION.OPEN"])
def test_names_are_case_insensitive_and_unknown_members_ignored(rig: Rig, name: bytes) -> None:
    body = b'{"protocol": {"name": "MTL", "version": 1, "x": 1}, "later": [1]}'
    ((*_, code, _body),) = rig.control(b"id", b"", name, body)
    assert code == b"201"


@pytest.mark.requirement("MTL-52")
def test_unknown_commands(rig: Rig, client: Client) -> None:
    ((*_, code, text),) = rig.control(b"id", b"", b"Queue.Purge", b"{}")
    assert (code, json.loads(text)["reason"]) == (b"501", w.UNKNOWN_COMMAND)


@pytest.mark.requirement("MTL-40", "MTL-52")
def test_request_classes_are_allowed_by_profile(rig: Rig) -> None:
    client = rig.client("test")
    for request in (w.ResourceList(), w.LeaseClose(lease="x"), w.StageDescribe(), w.CursorDescribe()):
        refused = client.refused(request)
        assert (refused.status, refused.reason) == (501, w.UNKNOWN_COMMAND)


# --- Describe -----------------------------------------------------------------------------------------------


@pytest.fixture
def filled(client: Client) -> Client:
    client.create("a", "b", "c")
    client.fill("a", [b"x"])
    return client


def test_describe_by_name_names_pattern_or_without_argument(filled: Client) -> None:
    for request, expected in (
        (w.ResourceDescribe(resource="a"), ["a"]),
        (w.ResourceDescribe(resources=["c", "a"]), ["a", "c"]),
        (w.ResourceDescribe(pattern="[bc]"), ["b", "c"]),
        (w.ResourceDescribe(pattern="x"), []),
        (w.ResourceDescribe(), ["a", "b", "c"]),
    ):
        assert [x.resource for x in filled.ask(request, w.DescriptionList).resources] == expected
    refused = filled.refused(w.ResourceDescribe(resources=["a", "x", "y"]))
    assert (refused.status, refused.members["missing"]) == (404, ["x", "y"])


def test_describe_works_while_the_disk_fails_to_read(rig: Rig, filled: Client) -> None:
    small = Rig(segment_bytes=1_200)
    client = small.client()
    client.create("a")
    client.fill("a", [bytes(1_000)] * 4)
    client.ask(w.CursorOpen(group="g", resource="a"), w.CursorOpened)
    small.restart()
    client = small.client()
    small.disk.fail("read", count=100)
    assert client.describe("a").oldest_time is None
    assert client.ask(w.CursorDescribe(), w.CursorList).cursors[0].bytes_behind == 0
    refused = client.refused(w.ResourceLocate(resource="a", timestamp=START_US))
    assert (refused.status, refused.reason) == (503, w.STORAGE)


# --- Locate -------------------------------------------------------------------------------------------------


@pytest.fixture
def timed(rig: Rig, client: Client) -> Client:
    """Chunks of three contents at 0, 10, 20 and 30 seconds: 1, 4, 7, 10."""
    client.create("a")
    flow = client.flow(client.writer("a", packed=True))
    for first in (1, 4, 7, 10):
        flow.pack(first, [b"x"] * 3)
        rig.sleep(10)
    return client


@pytest.mark.parametrize(
    ("seconds", "sequence", "match"),
    [
        (-5, 1, True),
        (0, 1, True),
        (0.5, 4, True),
        (10, 4, True),
        (25, 10, True),
        (30, 10, True),
        (31, 13, False),
    ],
)
def test_locate_by_time(timed: Client, seconds: float, sequence: int, match: bool) -> None:
    at = START_US + int(seconds * 1_000_000)
    located = timed.ask(w.ResourceLocate(resource="a", timestamp=at), w.Located)
    assert (located.sequence, located.match) == (sequence, match)
    assert (located.timestamp is not None) is match


@pytest.mark.parametrize(
    ("start", "contents", "end"),
    [(1, 1, 2), (1, 3, 4), (2, 100, 13), (12, 1, 13), (1, None, 13)],
)
def test_locate_by_contents(timed: Client, start: int, contents: int | None, end: int) -> None:
    located = timed.ask(w.ResourceLocate(resource="a", start=start, contents=contents), w.Located)
    assert (located.sequence, located.match) == (end, True)


def test_locate_by_octets_is_at_least_one_chunk(timed: Client) -> None:
    chunk = (timed.describe("a").bytes or 0) // 4
    for octets, end in ((1, 4), (chunk, 4), (3 * chunk, 10), (1 << 40, 13)):
        located = timed.ask(w.ResourceLocate(resource="a", start=1, bytes=octets), w.Located)
        assert abs(located.sequence - end) <= 3
        assert located.sequence > 3
    assert timed.ask(w.ResourceLocate(resource="a", start=1, bytes=1), w.Located).sequence == 4


def test_locate_at_the_end_and_beyond(timed: Client) -> None:
    located = timed.ask(w.ResourceLocate(resource="a", start=13, contents=5), w.Located)
    assert (located.sequence, located.match) == (13, False)
    beyond = timed.refused(w.ResourceLocate(resource="a", start=14, contents=5))
    assert isinstance(beyond, DataLoss)
    assert timed.refused(w.ResourceLocate(resource="a", start=0)).status == 400
    assert timed.refused(w.ResourceLocate(resource="x", start=1)).status == 404
