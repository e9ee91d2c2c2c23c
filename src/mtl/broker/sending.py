"""Carries out the core's sends, and tells it which peers are full or gone.

Order is kept per peer: once a command has to wait for room, everything behind it waits too, so that a Response is
always before the contents it announces.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from mtl import limits
from mtl.broker import actions as a
from mtl.broker.core import Broker
from mtl.errors import Damaged, StorageError
from mtl.net.broker_sockets import BrokerSockets
from mtl.net.router import Sent
from mtl.wire import commands as c
from mtl.wire.fields import encode_table, join_tables
from mtl.wire.packs import trust_pack, unpack


class Sender:
    """Sends on the broker's sockets without ever waiting."""

    def __init__(self, sockets: BrokerSockets, broker: Broker, clock: Callable[[], a.Now]) -> None:
        self._sockets = sockets
        self._broker = broker
        self._clock = clock
        self._waiting: dict[a.Peer, deque[a.Send]] = {}

    def send(self, action: a.Reply | a.Send | a.Deliver | a.Relay) -> None:
        """Carry out one send."""
        match action:
            case a.Reply():
                # A REQ that is gone or full does not wait for this any more; it will ask again.
                self._sockets.control.send(*action.envelope, *action.frames)
            case a.Send():
                self._command(action)
            case a.Deliver():
                self._deliver(action)
            case a.Relay():
                self._relay(action)

    def heard(self, peer: a.Peer) -> None:
        """A frame came from this peer: its queue may have room again."""
        if peer in self._waiting:
            self._flush_peer(peer)

    def flush(self) -> None:
        """Try again what waits."""
        for peer in list(self._waiting):
            self._flush_peer(peer)

    def _flush_peer(self, peer: a.Peer) -> None:
        waiting = self._waiting[peer]
        while waiting:
            sent = self._put(peer, waiting[0].header, waiting[0].body)
            if sent is Sent.FULL:
                return
            waiting.popleft()
            if sent is Sent.GONE:
                break
        self._waiting.pop(peer, None)

    def _command(self, action: a.Send) -> None:
        waiting = self._waiting.get(action.peer)
        if waiting is None and self._put(action.peer, action.header, action.body) is not Sent.FULL:
            return
        waiting = self._waiting.setdefault(action.peer, deque())
        waiting.append(action)
        if len(waiting) > limits.SEND_BACKLOG:
            del self._waiting[action.peer]
            self._broker.unreachable(action.peer, self._clock())

    def _deliver(self, action: a.Deliver) -> None:
        if action.peer in self._waiting:
            self._broker.blocked(action.lease, action.first, self._clock())
            return
        try:
            body = action.log.read(action.ref)
        except LookupError:  # retention took it between the decision and now: the core finds what is left
            self._broker.blocked(action.lease, action.first, self._clock())
            return
        except Damaged as e:
            self._broker.damaged(action.lease, e, self._clock())
            return
        except StorageError:
            self._broker.blocked(action.lease, action.first, self._clock())
            return
        if action.packed:
            self._deliver_pack(action, body)
        else:
            self._deliver_plain(action, body)

    def _deliver_pack(self, action: a.Deliver, body: memoryview) -> None:
        ref = action.ref
        properties = c.packed_properties(ref.count, ref.time_us)
        header, _ = c.encode(c.Content(ref.base, action.resource, properties, b""))
        if self._put(action.peer, header, body) is Sent.FULL:
            self._broker.blocked(action.lease, action.first, self._clock())

    def _deliver_plain(self, action: a.Deliver, body: memoryview) -> None:
        """Unpack for a plain reader, who sees plain RFC 11: one Content each, with the chunk's append time."""
        ref = action.ref
        batch = trust_pack(body).slice(action.first - ref.base, action.last - action.first + 1)
        stamp = encode_table({c.TIMESTAMP: ref.time_us})
        for sequence, (properties, content) in enumerate(unpack(batch), action.first):
            table = join_tables(properties, stamp)
            header, _ = c.encode(c.Content(sequence, action.resource, table, b""))
            sent = self._put(action.peer, header, content)
            if sent is Sent.FULL:
                self._broker.blocked(action.lease, sequence, self._clock())
                return
            if sent is Sent.GONE:
                return

    def _relay(self, action: a.Relay) -> None:
        header, body = c.encode(action.content)
        if action.peer in self._waiting or self._put(action.peer, header, body) is Sent.FULL:
            self._broker.unsent(action.lease, action.content, self._clock())

    def _put(self, peer: a.Peer, header: bytes, body: c.Buffer) -> Sent:
        port, identity = peer
        sent = self._sockets.send(port, identity, header, body)
        if sent is Sent.GONE:
            self._broker.unreachable(peer, self._clock())
        return sent
