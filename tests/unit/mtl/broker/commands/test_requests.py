"""Control requests as frames, List, Describe. Each class of requests has its own module of tests."""

from __future__ import annotations

import json

import pytest

from mtl.wire import control
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
    assert (code, json.loads(text)["reason"]) == (b"501", control.UNKNOWN_COMMAND)


@pytest.mark.requirement("MTL-40", "MTL-52")
def test_request_classes_are_allowed_by_profile(rig: Rig) -> None:
    client = rig.client("test")
    for request in (
        control.ResourceList(),
        control.LeaseClose(lease="x"),
        control.StageDescribe(),
        control.CursorDescribe(),
    ):
        refused = client.refused(request)
        assert (refused.status, refused.reason) == (501, control.UNKNOWN_COMMAND)


# --- Describe -----------------------------------------------------------------------------------------------


@pytest.fixture
def filled(client: Client) -> Client:
    client.create("a", "b", "c")
    client.fill("a", [b"x"])
    return client


def test_describe_by_name_names_pattern_or_without_argument(filled: Client) -> None:
    for request, expected in (
        (control.ResourceDescribe(resource="a"), ["a"]),
        (control.ResourceDescribe(resources=["c", "a"]), ["a", "c"]),
        (control.ResourceDescribe(pattern="[bc]"), ["b", "c"]),
        (control.ResourceDescribe(pattern="x"), []),
        (control.ResourceDescribe(), ["a", "b", "c"]),
    ):
        assert [x.resource for x in filled.ask(request, control.DescriptionList).resources] == expected
    refused = filled.refused(control.ResourceDescribe(resources=["a", "x", "y"]))
    assert (refused.status, refused.members["missing"]) == (404, ["x", "y"])


def test_describe_works_while_the_disk_fails_to_read(rig: Rig, filled: Client) -> None:
    small = Rig(segment_bytes=1_200)
    client = small.client()
    client.create("a")
    client.fill("a", [bytes(1_000)] * 4)
    client.ask(control.CursorOpen(group="g", resource="a"), control.CursorOpened)
    small.restart()
    client = small.client()
    small.disk.fail("read", count=100)
    assert client.describe("a").oldest_time is None
    assert client.ask(control.CursorDescribe(), control.CursorList).cursors[0].bytes_behind == 0
    refused = client.refused(control.ResourceLocate(resource="a", timestamp=START_US))
    assert (refused.status, refused.reason) == (503, control.STORAGE)
