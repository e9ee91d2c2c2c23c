"""Packs in shared memory that the broker lends to a writer: PROTOCOL.md 5.7."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtl.broker import limits as broker_limits
from mtl.broker.commands.granting_writers import LocalWrites
from mtl.net.shared import Lent, borrow
from mtl.storage.api import Append
from mtl.wire import commands
from mtl.wire.fields import encode_table
from mtl.wire.packs import encode_pack
from mtl.wire.ranges import OFFSET, SIZE, Span
from tests.support.core import Client, Rig


def refused(number: int) -> commands.Reject:
    return commands.Reject(number, False, False)


def confirm(number: int) -> commands.Confirm:
    return commands.Confirm(number, True)


class Sharing:
    """A writer with shared memory of the broker."""

    def __init__(self) -> None:
        self.rig = Rig(local_writes=LocalWrites("here", lambda: Lent(1 << 16)))
        self.client = self.rig.client()
        self.client.create("a")
        self.lease = self.client.writer("a", packed=True, local="here")
        assert self.lease.memory is not None
        memory = borrow(self.lease.memory)
        assert memory is not None
        self.memory = memory
        self.flow = self.client.flow(self.lease)

    def put(self, bodies: list[bytes], at: int = 64) -> Span:
        pack = bytes(encode_pack(bodies))
        self.memory[at : at + len(pack)] = pack
        return Span(at, len(pack))


def handed(number: int, count: int, span: Span) -> commands.Content:
    return commands.Content(number, "a", span.properties(count), b"")


def test_a_pack_in_shared_memory_is_stored() -> None:
    at = Sharing()
    at.flow.send(handed(1, 2, at.put([b"x", b"y"])))
    at.flow.pack(3, [b"sent"])
    assert at.flow.sent() == [confirm(2), confirm(3)]
    assert at.client.read("a") == [b"x", b"y", b"sent"]


def test_shared_memory_may_be_reused_after_the_confirm() -> None:
    """Later readers must not get octets written there since."""
    at = Sharing()
    written = []
    for number in range(5):
        body = b"%d" % number * 20_000
        at.flow.send(handed(number + 1, 1, at.put([body])))
        assert at.flow.sent() == [confirm(number + 1)]
        written.append(body)
    assert at.client.read("a") == written


def test_a_pack_changed_before_it_is_durable_is_stored_as_checked() -> None:
    at = Sharing()
    at.rig.hold(Append)
    pack = at.put([b"x" * 100, b"y" * 100])
    at.flow.send(handed(1, 2, pack))

    at.memory[pack.offset : pack.offset + pack.size] = b"\xff" * pack.size

    at.rig.let_go()
    assert at.flow.sent() == [confirm(2)]
    assert at.client.read("a") == [b"x" * 100, b"y" * 100]


def test_a_duplicate_in_shared_memory_is_confirmed_with_the_original() -> None:
    at = Sharing()
    at.rig.hold(Append)
    pack = handed(1, 1, at.put([b"x" * 100]))
    at.flow.send(pack)
    again = at.client.flow(at.lease)
    again.send(pack)
    assert again.sent() == []
    at.rig.let_go()
    assert again.sent() == [confirm(1)]
    assert at.client.read("a") == [b"x" * 100]


@pytest.mark.parametrize(
    "properties",
    [
        Span(0, 100).properties(1),
        Span(64, 1 << 40).properties(1),
        Span(5_000, 500).properties(1),
        commands.packed_properties(1),
        encode_table({commands.COUNT: 1, OFFSET: 64}),
        encode_table({commands.COUNT: 1, OFFSET: "64", SIZE: 100}),
        encode_table({commands.COUNT: 1, OFFSET: -64, SIZE: 100}),
        encode_table({commands.COUNT: 1, OFFSET: 64, SIZE: 0}),
    ],
)
def test_invalid_octets_in_shared_memory_are_rejected_for_good(properties: bytes) -> None:
    at = Sharing()
    at.flow.send(commands.Content(1, "a", properties, b""))
    at.flow.send(handed(2, 1, at.put([b"next"])))
    assert at.flow.sent() == [refused(1), confirm(2)]
    assert at.client.read("a") == [b"next"]


def test_a_span_from_a_writer_without_shared_memory_is_rejected(client: Client) -> None:
    client.create("a")
    flow = client.flow(client.writer("a", packed=True))
    flow.send(handed(1, 1, Span(64, 100)))
    assert flow.sent() == [refused(1)]


def test_shared_memory_of_a_killed_writer_is_freed_before_its_lease_ends() -> None:
    at = Sharing()
    at.flow.send(handed(1, 1, at.put([b"x"])))
    assert at.lease.memory is not None
    at.rig.sleep(broker_limits.EXPIRY_CHECK_S)
    at.flow.send(handed(2, 1, at.put([b"y"])))  # it lives, and has its memory

    at.memory.close()  # as the end of its process does
    at.rig.sleep(broker_limits.EXPIRY_CHECK_S)

    assert not Path(at.lease.memory.file).exists()
    again = at.client.flow(at.lease)
    again.send(handed(3, 1, Span(64, 100)))
    again.pack(4, [b"sent"])
    assert again.sent() == [refused(3), confirm(4)]
    assert at.client.read("a") == [b"x", b"y", b"sent"]


def test_freed_shared_memory_is_lent_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "SHARED_MEMORIES", 1)
    at = Sharing()
    assert at.client.writer("a", packed=True, local="here").memory is None

    at.memory.close()
    at.rig.sleep(broker_limits.EXPIRY_CHECK_S)

    assert at.client.writer("a", packed=True, local="here").memory is not None
    at.client.close_lease(at.lease)
    assert at.client.writer("a", packed=True, local="here").memory is None
