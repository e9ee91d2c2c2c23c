"""Octets of messages that are handed out without a copy."""

from __future__ import annotations

import pyarrow as pa
import zmq

from mtl.net.held import _AT_ONCE, HeldFrames


def test_frames_are_freed_by_their_owner_after_the_last_use() -> None:
    held = HeldFrames()
    octets = held.hold(zmq.Frame(b"x" * 100))
    held.free_unused()
    assert (bytes(octets[:2]), len(held)) == (b"xx", 1)
    part = pa.py_buffer(octets).slice(10, 5)
    del octets
    held.free_unused()
    assert (part.to_pybytes(), len(held)) == (b"xxxxx", 1)
    del part
    held.free_unused()
    assert len(held) == 0


def test_frames_behind_others_that_are_in_use_are_freed_in_some_rounds() -> None:
    held = HeldFrames()
    kept = [held.hold(zmq.Frame(b"kept")) for _ in range(3 * _AT_ONCE)]
    for _ in range(10):
        held.hold(zmq.Frame(b"dropped"))
    for _ in range(5):
        held.free_unused()
    assert len(held) == len(kept)
