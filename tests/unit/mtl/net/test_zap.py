"""RFC 27."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from zmq.utils import z85

from mtl.net.open_connections import OpenConnections
from mtl.net.pace import Pace
from mtl.net.zap import ENDPOINT, ZapHandler

KEY = bytes(range(32))
STILL = Pace(lambda: 0.0)
"""Nobody of these tests comes near the limit."""


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.term()


def judged(handler: ZapHandler, *frames: bytes) -> list[bytes]:
    return handler._judge(list(frames))


def test_a_key_is_admitted_by_name_or_denied(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    asked: list[str] = []

    def first(key: str) -> bool:
        asked.append(key)
        return len(asked) == 1

    handler = ZapHandler(context, first, STILL)
    question = (b"1.0", b"17", b"mtl", b"127.0.0.1", b"", b"CURVE", KEY)
    yes, no = judged(handler, *question), judged(handler, *question)
    assert yes == [b"1.0", b"17", b"200", b"OK", b"1 " + asked[0].encode(), b""]
    assert len(asked[0]) == 40
    assert (no[2], no[4], handler.denied) == (b"400", b"", 1)
    handler.close()


@pytest.mark.parametrize(
    "frames",
    [
        (),
        (b"1.0",),
        (b"2.0", b"17", b"mtl", b"127.0.0.1", b"", b"CURVE", KEY),
        (b"1.0", b"17", b"mtl", b"127.0.0.1", b"", b"NULL"),
        (b"1.0", b"17", b"mtl", b"127.0.0.1", b"", b"PLAIN", b"user", b"password"),
        (b"1.0", b"17", b"mtl", b"127.0.0.1", b"", b"CURVE", KEY[1:]),
    ],
)
def test_other_requests_are_denied(
    context: zmq.Context[zmq.Socket[bytes]], frames: tuple[bytes, ...]
) -> None:
    handler = ZapHandler(context, lambda _: True, STILL)
    assert judged(handler, *frames)[2] == b"400"
    handler.close()


def test_without_curve_every_connection_has_its_own_number(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    handler = ZapHandler(context, None, STILL)
    question = (b"1.0", b"17", b"mtl", b"127.0.0.1", b"the peer's", b"NULL")
    assert [judged(handler, *question)[4] for _ in range(3)] == [b"1", b"2", b"3"]
    refused = judged(handler, *question[:-1], b"CURVE", KEY)
    assert (refused[2], refused[4]) == (b"400", b"")
    handler.close()


def test_an_address_that_connects_too_fast_gets_300(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    handler = ZapHandler(context, None, Pace(lambda: 0.0, burst=2))
    here = (b"1.0", b"17", b"mtl", b"10.0.0.1", b"", b"NULL")
    assert [judged(handler, *here)[2] for _ in range(3)] == [b"200", b"200", b"300"]
    assert judged(handler, b"1.0", b"17", b"mtl", b"10.0.0.2", b"", b"NULL")[2] == b"200"
    assert (handler.hurried, handler.denied) == (1, 0)
    handler.close()


def test_an_address_with_too_many_open_connections_gets_300(
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:
    opened = OpenConnections(1, lambda _: "10.0.0.1")
    handler = ZapHandler(context, None, STILL, opened=opened)
    here = (b"1.0", b"17", b"mtl", b"10.0.0.1", b"", b"NULL")
    opened.opened("here", 7)
    opened.opened("here", 8)
    assert judged(handler, *here)[2:4] == [b"300", b"too many open connections: 1 is the limit, try again"]
    assert judged(handler, b"1.0", b"17", b"mtl", b"10.0.0.2", b"", b"NULL")[2] == b"200"
    opened.ended("here", 7)
    assert judged(handler, *here)[2] == b"200"
    assert handler.hurried == 1
    handler.close()


def test_denied_connections_are_reported_with_the_reason(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    refused: list[tuple[str, str, str]] = []
    pace = Pace(lambda: 0.0, burst=1)
    handler = ZapHandler(
        context, lambda key: key == z85.encode(KEY).decode(), pace, lambda *why: refused.append(why)
    )
    for key in (KEY, KEY, bytes(32), b"no key"):
        judged(handler, b"1.0", b"17", b"mtl", b"10.0.0.1", b"", b"CURVE", key)
    assert refused == [
        (
            "10.0.0.1",
            z85.encode(KEY).decode(),
            "too many connections: 1 at once and 100 a second is the limit",
        ),
        ("10.0.0.1", z85.encode(bytes(32)).decode(), "this key is not accepted"),
        ("10.0.0.1", "", "this key is not accepted"),
    ]
    handler.close()


def test_any_request_has_an_answer(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    handler = ZapHandler(context, lambda _: True, STILL)

    @given(st.lists(st.binary(max_size=40), max_size=9))
    def answered(frames: list[bytes]) -> None:
        assert len(judged(handler, *frames)) == 6

    try:
        answered()
    finally:
        handler.close()


def test_all_waiting_requests_are_answered(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    handler = ZapHandler(context, lambda _: True, STILL)
    asking = [context.socket(zmq.REQ) for _ in range(3)]
    for socket in asking:
        socket.connect(ENDPOINT)
        socket.send_multipart([b"1.0", b"1", b"mtl", b"", b"", b"CURVE", KEY])
    for socket in asking:
        while not socket.poll(10):
            handler.answer()
        assert socket.recv_multipart()[2] == b"200"
        socket.close(0)
    handler.answer()
    handler.close()
