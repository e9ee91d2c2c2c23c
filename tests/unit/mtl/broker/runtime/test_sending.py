"""The sender alone: order per peer, full queues, unreachable peers. The choice of contents is in test_readers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mtl.broker import actions
from mtl.broker import limits as broker_limits
from mtl.broker.quotas.pools import Pool
from mtl.broker.quotas.quotas import Quota, Quotas, QuotaSettings
from mtl.broker.runtime.ports import Outcomes
from mtl.broker.runtime.sending import LoopSender
from mtl.errors import Damaged
from mtl.net.limits import ZERO_COPY
from mtl.net.ports import Port
from mtl.net.router import SendOutcome
from mtl.storage.api import Chunk, ChunkRef
from mtl.wire import commands
from mtl.wire.fields import EMPTY
from mtl.wire.packs import encode_pack
from mtl.wire.ranges import FileRange
from tests.support.core import Sockets

PEER: actions.Peer = (Port.PLAIN, b"peer")
OTHER: actions.Peer = (Port.PACKED, b"other")
BODIES = [b"%d" % n for n in range(1, 6)]


class Core:
    """The reports of a sender to the core."""

    def __init__(self) -> None:
        self.reports: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.reports.append((name, *arguments[:-1]))


class Desk:
    def __init__(self) -> None:
        self.sockets = Sockets()
        self.core = Core()
        self.backlog = Pool(Quotas(QuotaSettings(), lambda _: False), Quota.WAITING_COMMANDS)
        self.sender = LoopSender(
            self.sockets, cast(Outcomes, self.core), lambda: actions.Now(0.0, 0), self.backlog
        )

    def command(self, command: commands.Command, peer: actions.Peer = PEER) -> None:
        self.sender.send(actions.Send(peer, *commands.encode(command), "me"))

    def sent(self, peer: actions.Peer = PEER) -> list[commands.Command]:
        return [commands.decode(*x) for x in self.sockets.sent.pop(peer, [])]

    def room(self, messages: int | None, peer: actions.Peer = PEER) -> None:
        if messages is None:
            self.sockets.room.pop(peer, None)
        else:
            self.sockets.room[peer] = messages


def deliver(
    first: int = 11, last: int = 15, *, packed: bool = False, body: bytes | None = None
) -> actions.Deliver:
    """Contents of a chunk of five contents, 11 to 15."""
    pack = memoryview(bytes(encode_pack(BODIES)) if body is None else body)
    return actions.Deliver(PEER, "lease", "me", "a", Chunk(reference(len(pack)), pack), first, last, packed)


def reference(size: int) -> ChunkRef:
    return cast(ChunkRef, SimpleNamespace(base=11, count=5, time_us=77, size=size, end=16))


# --- commands -----------------------------------------------------------------------------------------------


def test_a_command_is_sent_at_once() -> None:
    desk = Desk()
    desk.command(commands.Pong())
    assert desk.sent() == [commands.Pong()]


def test_commands_wait_for_room_in_their_order() -> None:
    desk = Desk()
    desk.room(1)
    responses = [commands.Response(n, 200) for n in range(4)]
    for command in responses:
        desk.command(command)
    desk.command(commands.Pong(), OTHER)
    assert (desk.sent(), desk.sent(OTHER)) == (responses[:1], [commands.Pong()])
    desk.room(2)
    desk.sender.flush()
    assert desk.sent() == responses[1:3]
    desk.room(None)
    desk.command(commands.Pong())
    desk.sender.on_frame(PEER)
    assert desk.sent() == [responses[3], commands.Pong()]


def test_contents_wait_behind_commands() -> None:
    """A Response is always before the contents that it announces."""
    desk = Desk()
    desk.room(0)
    desk.command(commands.Response(1, 200))
    desk.room(None)
    desk.sender.send(deliver())
    desk.sender.send(actions.Relay(PEER, "relay", "me", commands.Content(1, "resource", EMPTY, b"x")))
    assert desk.sent() == []
    assert [x[:2] for x in desk.core.reports] == [("blocked", "lease"), ("unsent", "relay")]
    desk.sender.flush()
    assert desk.sent() == [commands.Response(1, 200)]


def test_a_peer_with_a_full_backlog_is_reported_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "SEND_BACKLOG", 3)
    desk = Desk()
    desk.room(0)
    for _ in range(4):
        desk.command(commands.Ping())
    assert desk.core.reports == [("unreachable", PEER)]
    desk.room(None)
    desk.sender.flush()
    assert desk.sent() == []


@pytest.mark.parametrize("waiting", [False, True])
def test_a_vanished_peer_is_reported_unreachable(waiting: bool) -> None:
    desk = Desk()
    if waiting:
        desk.room(0)
        desk.command(commands.Ping())
        desk.command(commands.Ping())
    desk.sockets.gone.add(PEER)
    if waiting:
        desk.sender.flush()
    else:
        desk.command(commands.Ping())
    assert desk.core.reports == [("unreachable", PEER)]
    desk.sender.on_frame(PEER)
    assert desk.sent() == []


def test_replies_go_to_the_control_socket() -> None:
    desk = Desk()
    desk.sender.send(actions.SendReply((b"id", b""), (b"200", b"{}"), "me"))
    assert desk.sockets.replies == [(b"id", b"", b"200", b"{}")]


# --- contents -----------------------------------------------------------------------------------------------


def test_a_pack_is_sent_as_the_stored_chunk() -> None:
    desk = Desk()
    desk.sender.send(deliver(packed=True))
    (content,) = desk.sent()
    assert isinstance(content, commands.Content)
    assert (content.sequence, content.properties) == (11, commands.packed_properties(5, 77))
    assert content.body == bytes(encode_pack(BODIES))


def test_a_pack_with_a_place_in_a_local_file_is_sent_without_its_octets() -> None:
    desk = Desk()
    chunk = Chunk(reference(500), memoryview(b""), ("/data/1.segment", 4096))
    desk.sender.send(actions.Deliver(PEER, "lease", "me", "a", chunk, 11, 15, packed=True))
    (content,) = desk.sent()
    assert isinstance(content, commands.Content)
    assert (content.sequence, content.body) == (11, b"")
    assert (commands.packed_count(content.properties), commands.delivery_timestamp(content.properties)) == (
        5,
        77,
    )
    assert FileRange.of(content.properties) == FileRange("/data/1.segment", 4096, 500)


@pytest.mark.parametrize(("first", "last"), [(11, 15), (12, 14), (15, 15)])
def test_a_run_of_plain_contents_is_sent(first: int, last: int) -> None:
    desk = Desk()
    desk.sender.send(deliver(first, last))
    contents = desk.sent()
    assert [(x.sequence, x.body) for x in contents if isinstance(x, commands.Content)] == [
        (n, BODIES[n - 11]) for n in range(first, last + 1)
    ]


@pytest.mark.parametrize("room", [0, 2])
def test_a_full_queue_is_reported_with_the_next_sequence(room: int) -> None:
    desk = Desk()
    desk.room(room)
    desk.sender.send(deliver())
    assert desk.core.reports == [("blocked", "lease", 11 + room)]


def test_no_content_of_a_blocked_lease_is_sent_in_the_same_round() -> None:
    desk = Desk()
    desk.room(2)
    desk.sender.send(deliver(11, 13))
    desk.room(None)
    desk.sender.send(deliver(14, 15))
    assert len(desk.sent()) == 2
    assert desk.core.reports == [("blocked", "lease", 13)]
    desk.sender.flush()
    desk.sender.send(deliver(13, 15))
    assert len(desk.sent()) == 3


def test_a_peer_lost_in_a_delivery_is_reported_with_the_next_sequence() -> None:
    desk = Desk()
    desk.sockets.gone.add(PEER)
    desk.sender.send(deliver())
    desk.sender.send(deliver())
    assert desk.core.reports == [("blocked", "lease", 11), ("unreachable", PEER)]


def test_a_chunk_that_does_not_decode_is_reported_as_damage() -> None:
    desk = Desk()
    desk.sender.send(deliver(body=b"no pack"))
    desk.sender.send(deliver())
    assert desk.sent() == []
    ((*report,),) = desk.core.reports
    assert report[:3] == ["unread", "lease", "a"]
    assert isinstance(report[4], Damaged)


def test_relays_without_room_are_returned_in_order() -> None:
    desk = Desk()
    contents = [commands.Content(n, "resource", EMPTY, b"x") for n in (1, 2, 3)]
    desk.room(1)
    for content in contents:
        desk.sender.send(actions.Relay(PEER, "lease", "me", content))
        desk.room(0 if content.sequence == 1 else None)
    assert desk.sent() == contents[:1]
    assert desk.core.reports == [("unsent", "lease", x) for x in contents[1:]]
    desk.sockets.gone.add(PEER)
    desk.sender.flush()
    desk.sender.send(actions.Relay(PEER, "lease", "me", contents[0]))
    assert desk.core.reports[-1] == ("unreachable", PEER)


def test_commands_that_wait_for_room_are_bounded_for_each_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "MAX_WAITING_COMMANDS", 40)
    desk = Desk()
    monkeypatch.setattr(
        desk.backlog, "_quotas", Quotas(QuotaSettings(dict.fromkeys(Quota, 10)), lambda _: False)
    )
    peers: list[actions.Peer] = [(Port.PLAIN, b"%d" % n) for n in range(5)]
    for peer in peers:
        desk.room(0, peer)
        desk.command(commands.Pong(), peer)
        desk.command(commands.Pong(), peer)
    assert (desk.backlog.used, desk.core.reports) == (10, [])
    desk.command(commands.Pong(), peers[0])
    assert desk.core.reports == [("unreachable", peers[0])]
    assert desk.backlog.used == 8
    desk.room(None, peers[1])
    desk.sender.flush()
    assert desk.backlog.used == 6
    assert len(desk.sent(peers[1])) == 2


def test_a_small_part_of_a_chunk_does_not_keep_the_chunk_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk()
    taken: list[Any] = []

    def take(_peer: actions.Peer, _headers: Any, bodies: Any, _owner: str) -> tuple[int, SendOutcome]:
        taken.extend(bodies)
        return len(bodies), SendOutcome.OK

    monkeypatch.setattr(desk.sockets, "send_contents", take)
    bodies = [bytes(ZERO_COPY), b"x", b"", bytes(5 * ZERO_COPY), bytes(ZERO_COPY)]
    desk.sender.send(deliver(body=bytes(encode_pack(bodies))))
    assert [bytes(body) for body in taken] == bodies
    assert [isinstance(body, bytes) for body in taken] == [True, True, True, False, True]
