"""RFC 27."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from mtl.net.zap import ENDPOINT, ZapHandler

KEY = bytes(range(32))


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    made: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
    yield made
    made.term()


def judged(handler: ZapHandler, *frames: bytes) -> list[bytes]:
    return handler._judge(list(frames))


def test_a_key_is_let_in_by_name_or_not(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    asked: list[str] = []

    def first(key: str) -> bool:
        asked.append(key)
        return len(asked) == 1

    handler = ZapHandler(context, first)
    question = (b"1.0", b"17", b"mtl", b"127.0.0.1", b"", b"CURVE", KEY)
    yes, no = judged(handler, *question), judged(handler, *question)
    assert yes == [b"1.0", b"17", b"200", b"OK", asked[0].encode(), b""]
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
def test_anything_else_is_not_let_in(
    context: zmq.Context[zmq.Socket[bytes]], frames: tuple[bytes, ...]
) -> None:
    handler = ZapHandler(context, lambda _: True)
    assert judged(handler, *frames)[2] == b"400"
    handler.close()


def test_any_question_has_an_answer(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    handler = ZapHandler(context, lambda _: True)

    @given(st.lists(st.binary(max_size=40), max_size=9))
    def answered(frames: list[bytes]) -> None:
        assert len(judged(handler, *frames)) == 6

    try:
        answered()
    finally:
        handler.close()


def test_it_answers_all_that_was_asked(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    handler = ZapHandler(context, lambda _: True)
    asking = [context.socket(zmq.REQ) for _ in range(3)]
    for one in asking:
        one.connect(ENDPOINT)
        one.send_multipart([b"1.0", b"1", b"mtl", b"", b"", b"CURVE", KEY])
    for one in asking:
        while not one.poll(10):
            handler.answer()
        assert one.recv_multipart()[2] == b"200"
        one.close(0)
    handler.answer()
    handler.close()
