"""Carries out the core's actions: its sends here, all others by the workers. Reports full or lost peers to the core.

The order is kept for each peer. When a command has to wait for room, all later commands wait, too, so that a
Response is always before the contents it announces. When a content of a lease was not sent, no later content of it
is sent in the same round: the queue may have room again a moment later, and the reader would see a gap.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import repeat
from pathlib import Path

from mtl.broker import actions
from mtl.broker import limits as broker_limits
from mtl.broker.quotas.pools import Pool
from mtl.broker.reading.stored import stored_pack
from mtl.broker.runtime.ports import Clock, Outcomes, Sockets, Workers
from mtl.errors import StorageError
from mtl.net.limits import ZERO_COPY
from mtl.net.router import SendOutcome
from mtl.wire import commands
from mtl.wire.fields import EMPTY, Buffer, encode_table, join_tables
from mtl.wire.packs import unpacked
from mtl.wire.ranges import FileRange


class LoopSender:
    """Sends on the broker's sockets without blocking. A round is the calls of `send` up to the next `flush`. `backlog`
    counts the commands that wait for room.
    """

    def __init__(self, sockets: Sockets, broker: Outcomes, clock: Clock, backlog: Pool) -> None:
        self._sockets = sockets
        self._broker = broker
        self._clock = clock
        self._backlog = backlog
        self._waiting: dict[actions.Peer, deque[actions.Send]] = {}
        self._held_back: set[str] = set()
        """Leases with a content that was not sent in this round."""

    def send(self, action: actions.SendReply | actions.Send | actions.Deliver | actions.Relay) -> None:
        """Carry out one send."""
        match action:
            case actions.SendReply():
                # A full or closed REQ does not wait for this reply any more; its client asks again.
                self._sockets.reply((*action.envelope, *action.frames), action.owner)
            case actions.Send():
                self._command(action)
            case actions.Deliver():
                self._deliver(action)
            case actions.Relay():
                self._relay(action)

    def on_frame(self, peer: actions.Peer) -> None:
        """A frame came from this peer: its queue may have room again."""
        if peer in self._waiting:
            self._flush_peer(peer)

    def flush(self) -> None:
        """End the round, and try the waiting commands again."""
        self._held_back.clear()
        for peer in list(self._waiting):
            self._flush_peer(peer)

    def _flush_peer(self, peer: actions.Peer) -> None:
        waiting = self._waiting[peer]
        while waiting:
            sent = self._send_command(waiting[0])
            if sent is SendOutcome.FULL:
                return
            if sent is SendOutcome.GONE:
                self._drop_peer(peer)
                return
            self._backlog.remove(waiting.popleft().owner)
        self._waiting.pop(peer, None)

    def _command(self, action: actions.Send) -> None:
        if action.peer not in self._waiting:
            sent = self._send_command(action)
            if sent is SendOutcome.GONE:
                self._drop_peer(action.peer)
            if sent is not SendOutcome.FULL:
                return
        waiting = self._waiting.setdefault(action.peer, deque())
        waiting.append(action)
        self._backlog.add(action.owner)
        if len(waiting) > broker_limits.SEND_BACKLOG or self._backlog.excess(action.owner) > 0:
            self._drop_peer(action.peer)

    def _drop_peer(self, peer: actions.Peer) -> None:
        for action in self._waiting.pop(peer, ()):
            self._backlog.remove(action.owner)
        self._broker.unreachable(peer, self._clock())

    def _send_command(self, action: actions.Send) -> SendOutcome:
        return self._sockets.send(action.peer, action.header, action.body, action.owner)

    # --- contents -------------------------------------------------------------------------------------------

    def _deliver(self, action: actions.Deliver) -> None:
        if action.lease in self._held_back:
            return  # the core knows the content with which this lease continues
        if action.peer in self._waiting:
            self._hold_back(action, _first_number(action))
            return
        headers, bodies = self._run(action)
        sent, outcome = self._sockets.send_contents(action.peer, headers, bodies, action.owner)
        if outcome is not SendOutcome.OK:
            self._hold_back(action, _first_number(action) + sent)
        if outcome is SendOutcome.GONE:
            self._drop_peer(action.peer)

    def _hold_back(self, action: actions.Deliver, sequence: int) -> None:
        self._held_back.add(action.lease)
        self._broker.blocked(action.lease, sequence, self._clock())

    def _run(self, action: actions.Deliver) -> Run:
        """The Contents to be sent; none when the stored octets cannot be decoded."""
        try:
            return _wire(action)(action)
        except StorageError as e:
            self._held_back.add(action.lease)
            self._broker.unread(action.lease, action.resource, action.chunk.ref, e, self._clock())
        return (), ()

    def _relay(self, action: actions.Relay) -> None:
        waits = action.lease in self._held_back or action.peer in self._waiting
        sent = SendOutcome.FULL if waits else self._send_content(action)
        if sent is SendOutcome.FULL:
            self._held_back.add(action.lease)
            self._broker.unsent(action.lease, action.content, self._clock())
        elif sent is SendOutcome.GONE:
            self._drop_peer(action.peer)

    def _send_content(self, action: actions.Relay) -> SendOutcome:
        header, body = commands.encode(action.content)
        return self._sockets.send_contents(action.peer, (header,), (body,), action.owner)[1]


Run = tuple[Sequence[bytes], Sequence[Buffer]]
"""Headers and bodies of the Contents of one `Deliver`."""


def _first_number(action: actions.Deliver) -> int:
    """The first sequence of a `Deliver` on the wire."""
    return action.first if action.number is None else action.number


def _wire(action: actions.Deliver) -> Callable[[actions.Deliver], Run]:
    if action.chunk.place is not None:
        return _place
    if action.packed:
        return _pack
    return _contents if action.number is None else _deliveries


def _pack(action: actions.Deliver) -> Run:
    """The chunk as it is stored."""
    ref = action.chunk.ref
    properties = commands.packed_properties(ref.count, ref.time_us)
    header, _ = commands.encode(commands.Content(ref.base, action.resource, properties, b""))
    return (header,), (action.chunk.body,)


def _place(action: actions.Deliver) -> Run:
    """The place of the chunk, for a reader on this machine (PROTOCOL.md 5.6)."""
    ref = action.chunk.ref
    assert action.chunk.place is not None
    path, offset = action.chunk.place
    file_range = FileRange(_absolute(path), offset, ref.size)
    header, _ = commands.encode(
        commands.Content(ref.base, action.resource, file_range.properties(ref.count, ref.time_us), b"")
    )
    return (header,), (b"",)


@lru_cache(maxsize=1024)  # a segment has some hundred packs, and some hundred readers read at a time
def _absolute(path: str) -> str:
    return str(Path(path).resolve())  # the real path, because readers follow no symbolic links


def _contents(action: actions.Deliver) -> Run:
    """Unpacked for a plain reader (plain RFC 11): one Content each, with the chunk's append time."""
    tables, bodies = _unpacked(action)
    stamp = encode_table({commands.TIMESTAMP: action.chunk.ref.time_us})
    if tables is None:
        return commands.content_headers(
            commands.content_tail(action.resource, stamp), action.first, len(bodies)
        ), bodies
    tails = {
        table: commands.content_tail(action.resource, join_tables(table, stamp)) for table in set(tables)
    }
    return _headers(action.first, map(tails.__getitem__, tables)), bodies


def _deliveries(action: actions.Deliver) -> Run:
    """The same for a consumer of a queue: the sequence is a delivery number."""
    assert action.number is not None
    mark = {commands.REDELIVERED: True} if action.again else {}
    tables, bodies = _unpacked(action)
    stamps = (
        encode_table({commands.TIMESTAMP: action.chunk.ref.time_us, commands.SEQUENCE: position, **mark})
        for position in range(action.first, action.last + 1)
    )
    joined = map(join_tables, tables or repeat(EMPTY), stamps)
    return _headers(
        action.number, (commands.content_tail(action.resource, table) for table in joined)
    ), bodies


def _headers(first: int, tails: Iterable[bytes]) -> list[bytes]:
    return [commands.content_headers(tail, number, 1)[0] for number, tail in enumerate(tails, first)]


def _unpacked(action: actions.Deliver) -> tuple[list[bytes] | None, Sequence[Buffer]]:
    ref, chunk, _ = action.chunk
    tables, bodies = unpacked(
        stored_pack(ref, chunk).slice(action.first - ref.base, action.last - action.first + 1)
    )
    if max(map(len, bodies), default=0) < ZERO_COPY:
        return tables, bodies
    # A part that is sent without copying keeps the whole chunk in memory, which nothing would count.
    return tables, [bytes(body) if 2 * len(body) < ref.size else body for body in bodies]


def carry_out(
    turn: Sequence[actions.Action], sender: LoopSender, workers: Workers
) -> list[tuple[int, object]]:
    """Carry out the actions of one turn, in order. Returns the results of those that were performed at once."""
    for action in turn:
        if isinstance(action, actions.SendReply | actions.Send | actions.Deliver | actions.Relay):
            sender.send(action)
        else:
            workers.begin(action)
    sender.flush()
    return workers.end_turn()
