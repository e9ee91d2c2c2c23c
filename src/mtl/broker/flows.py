"""Data flows: the commands on the data ports, and the leases to which they belong.

One `DataFlow` per connection that presented a valid lease; commands from other connections are dropped and counted. A
ROUTER identity proves nothing (PROTOCOL.md 3): once its connection is gone another peer can announce it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from mtl.broker import actions
from mtl.broker.leases.lease import Lease
from mtl.broker.leases.leases import Leases
from mtl.broker.outbox import Outbox
from mtl.broker.reading.fanout import Fanout
from mtl.broker.steps import run
from mtl.broker.writing.writers import WriterLease, Writers
from mtl.errors import Malformed
from mtl.net.origin import Connection, key_of
from mtl.net.ports import Port
from mtl.protocol import states
from mtl.protocol.data import DataSession, OutOfTurn
from mtl.protocol.heartbeat import Heartbeat, HeartbeatVerdict
from mtl.wire import commands
from mtl.wire.fields import EMPTY, Buffer


class ReaderCommands(Protocol):
    """The handler of readers' commands for one kind of lease."""

    async def summon(self, lease: Any, resource: str) -> bool:
        """Begin to send contents of a resource that the lease covers; returns whether it can be read."""

    def dismiss(self, lease: Any, resource: str) -> None:
        """Send no further contents of the resource."""

    def confirm(self, lease: Any, sequence: int, multiple: bool) -> None:
        """Handle a Confirm; a sequence that was not sent is ignored (MTL-93)."""

    def reject(self, lease: Any, command: commands.Reject) -> None:
        """Handle a Reject; a sequence that was not sent is ignored (MTL-98)."""

    def on_frame(self, lease: Any) -> None:
        """A frame came from the reader's peer."""


_CONTENT = commands.Content(0, "", EMPTY, b"")
"""The command with which the state table is checked for a whole run of contents, since it treats all contents alike."""


class DataFlow:
    """One connection: its session, its heartbeat and the leases bound to it, at most one of a kind (PROTOCOL.md 3)."""

    __slots__ = ("_outbox", "connection", "heartbeat", "owner", "peer", "reader", "session", "writer")

    def __init__(
        self, outbox: Outbox, peer: actions.Peer, connection: Connection, heartbeat: Heartbeat
    ) -> None:
        self._outbox = outbox
        self.peer = peer
        self.connection = connection
        self.heartbeat = heartbeat
        self.session = DataSession(states.BROKER)
        self.reader: Lease | None = None
        self.writer: WriterLease | None = None
        self.owner = ""
        """The principal of the lease that was bound last."""

    def send(self, command: commands.Command) -> None:
        """Send a command that is not a reader's content."""
        self.session.sending(command)
        self.heartbeat.sent(self._outbox.now.mono)
        self._outbox.command(self.peer, command, self.owner)

    def lost(self, lease: Lease) -> None:
        """A lease was unbound. A reader's Summons are cleared: the next reader on this flow starts without any."""
        if self.reader is lease:
            self.reader = None
            self.session.released()
        if self.writer is lease:
            self.writer = None

    @property
    def empty(self) -> bool:
        """Whether no lease is bound to this flow any more."""
        return self.reader is None and self.writer is None


class Flows:
    """Every data flow by its peer, and the handlers of the protocol's events."""

    def __init__(
        self,
        outbox: Outbox,
        leases: Leases,
        writers: Writers,
        fanout: Fanout,
        reader_commands: Mapping[type, ReaderCommands],
        heartbeat_s: float,
        packs_on: Port,
    ) -> None:
        self._outbox = outbox
        self._leases = leases
        self._writers = writers
        self._fanout = fanout
        self._reader_commands = reader_commands
        self._heartbeat_s = heartbeat_s
        self._packs_on = packs_on
        self._flows: dict[actions.Peer, DataFlow] = {}
        self._by_connection: dict[Connection, DataFlow] = {}
        self.counts = {"malformed": 0, "unbound": 0, "out-of-turn": 0, "dead": 0, "taken-over": 0}
        self._events: dict[type, Callable[[DataFlow, commands.Command], None]] = {
            commands.Content: self._content,  # type: ignore[dict-item]
            commands.Confirm: self._confirm,  # type: ignore[dict-item]
            commands.Reject: self._reject,  # type: ignore[dict-item]
            commands.Summon: self._summon,  # type: ignore[dict-item]
            commands.Dismiss: self._dismiss,  # type: ignore[dict-item]
            commands.Ping: self._ping,
        }

    # --- from the sockets -----------------------------------------------------------------------------------

    def burst(
        self,
        peer: actions.Peer,
        headers: Sequence[bytes],
        bodies: Sequence[Buffer],
        connection: Connection = "",
    ) -> None:
        """Handle commands of one connection in order, with the effect of `received` for each. Runs of contents with
        consecutive numbers are handled together, because a check of each content would cost more than all other
        work.
        """
        at = 0
        while at < len(headers):
            together = self._run(peer, headers, bodies, at, connection)
            if not together:
                self.received(peer, headers[at], bodies[at], connection)
            at += together or 1

    def _run(
        self,
        peer: actions.Peer,
        headers: Sequence[bytes],
        bodies: Sequence[Buffer],
        at: int,
        connection: Connection,
    ) -> int:
        """Take in a run of contents from `at` on; returns their number."""
        flow = self._flows.get(peer)
        if flow is None or flow.writer is None or flow.writer.plain_form is None:
            return 0
        if flow.connection != connection:
            return 0
        try:
            flow.session.received(_CONTENT)
        except OutOfTurn:
            return 0
        accepted = self._writers.run(flow.writer, headers, bodies, at)
        if accepted:
            flow.heartbeat.received(self._outbox.now.mono)
            if flow.reader is not None:
                self._reader_commands[type(flow.reader)].on_frame(flow.reader)
        return accepted

    def received(self, peer: actions.Peer, header: bytes, body: Buffer, connection: Connection = "") -> None:
        """Handle one data command of this connection. Malformed ones are dropped and counted (MTL-110, MTL-111)."""
        try:
            command = commands.decode(header, body)
        except Malformed:
            self.counts["malformed"] += 1
            return
        flow = self._flows.get(peer)
        if flow is not None and flow.connection != connection:
            # Another connection has this identity now, so that of the flow is gone. The next Lease identifies the peer.
            self.counts["taken-over"] += 1
            self.drop(flow)
            flow = None
        if flow is not None and flow.empty:
            # Its leases have ended or moved. Nothing is answered here any more, not even a Ping: a fenced holder
            # notices it by that (PROTOCOL.md 5.3).
            self._forget(flow)
            flow = None
        if isinstance(command, commands.Lease):
            self._lease(peer, flow, command, connection)
            return
        if flow is None:
            self._stranger(peer, command)
            return
        flow.heartbeat.received(self._outbox.now.mono)
        try:
            flow.session.received(command)
        except OutOfTurn as e:
            self.counts["out-of-turn"] += 1
            if e.response is not None:
                flow.send(e.response)
            return
        event = self._events.get(type(command))
        if event is not None:
            event(flow, command)
        if flow.reader is not None:
            self._reader_commands[type(flow.reader)].on_frame(flow.reader)

    def unreachable(self, peer: actions.Peer) -> None:
        """The socket has no such peer any more: the peer's leases are unbound until they are presented again."""
        flow = self._flows.get(peer)
        if flow is not None:
            self.drop(flow)

    def drop(self, flow: DataFlow) -> None:
        """Forget a flow; its leases stay unbound until they are presented again or expire."""
        for lease in (flow.reader, flow.writer):
            if lease is not None:
                self._leases.unbind(lease)
        self._forget(flow)

    def disconnected(self, connection: Connection) -> None:
        """A connection has ended: nothing more is sent to its identity, which another peer may have announced."""
        flow = self._by_connection.get(connection)
        if flow is not None:
            self.drop(flow)

    def _forget(self, flow: DataFlow) -> None:
        self._flows.pop(flow.peer, None)
        self._by_connection.pop(flow.connection, None)

    def check(self) -> None:
        """Heartbeats: Ping silent peers, drop the flows of dead ones (MTL-99 to 104)."""
        now = self._outbox.now.mono
        for flow in list(self._flows.values()):
            if flow.empty:
                self._forget(flow)
                continue
            verdict = flow.heartbeat.check(now)
            if verdict is HeartbeatVerdict.PING:
                flow.send(commands.Ping())
            elif verdict is HeartbeatVerdict.DEAD:
                self.counts["dead"] += 1
                self.drop(flow)

    def __len__(self) -> int:
        return len(self._flows)

    # --- the commands ---------------------------------------------------------------------------------------

    def _lease(
        self, peer: actions.Peer, flow: DataFlow | None, command: commands.Lease, connection: Connection
    ) -> None:
        lease = self._leases.find(command.lease)
        if lease is not None and lease.terms.key != key_of(connection):
            lease = None  # behind CURVE a lease belongs to the key of the client that asked for it (PROTOCOL.md 3)
        if flow is None:
            if lease is None:
                self._outbox.command(peer, commands.Response(command.sequence, states.FORBIDDEN), "")
                return
            heartbeat = Heartbeat(self._outbox.now.mono, self._heartbeat_s)
            flow = self._flows[peer] = DataFlow(self._outbox, peer, connection, heartbeat)
            if connection:
                self._by_connection[connection] = flow
        flow.heartbeat.received(self._outbox.now.mono)
        try:
            flow.session.received(command)
        except OutOfTurn:
            # A Summon with this sequence still waits for its Response; answering the Lease now would be taken for it.
            self.counts["out-of-turn"] += 1
            return
        flow.send(commands.Response(command.sequence, self._presented(flow, lease)))

    def _presented(self, flow: DataFlow, lease: Lease | None) -> int:
        """Bind a lease to the flow that presented it, unless it is bound there; returns the code of the Response."""
        if lease is None:
            return states.FORBIDDEN
        if lease.flow is flow:
            return states.OK  # a repeated Lease on the same flow changes nothing
        if not self._bind(flow, lease):
            return states.FORBIDDEN
        return states.NEWLY_BOUND if lease.terms.binding else states.OK

    def _bind(self, flow: DataFlow, lease: Lease) -> bool:
        """Bind a lease: the last presenter wins (PROTOCOL.md 3). Returns whether it is bound now."""
        if lease.packed and flow.peer[0] is not self._packs_on:
            return False  # a queue for single contents, filled with packs, would take gigabytes
        current = flow.writer if isinstance(lease, WriterLease) else flow.reader
        if current is not None:
            return False  # a second lease of the same kind (PROTOCOL.md 3)
        self._leases.unbind(lease)
        if isinstance(lease, WriterLease):
            flow.writer = lease
        else:
            flow.reader = lease
        flow.owner = lease.terms.principal
        lease.rebound(flow)
        return True

    def _stranger(self, peer: actions.Peer, command: commands.Command) -> None:
        """A command from a peer without a lease: Summon and Dismiss are refused, others dropped (PROTOCOL.md 3)."""
        self.counts["unbound"] += 1
        if isinstance(command, commands.Summon | commands.Dismiss):
            self._outbox.command(peer, commands.Response(command.sequence, states.FORBIDDEN), "")

    def _content(self, flow: DataFlow, command: commands.Content) -> None:
        if flow.writer is None:
            self.counts["unbound"] += 1
            return
        if flow.writer.terms.profile.durable:
            self._writers.content(flow.writer, command)
        else:
            self._fanout.content(flow.writer, command)

    def _confirm(self, flow: DataFlow, command: commands.Confirm) -> None:
        lease = None if flow.reader is None else flow.reader.part(command.resource)
        if lease is not None:
            self._reader_commands[type(lease)].confirm(lease, command.sequence, command.multiple)

    def _reject(self, flow: DataFlow, command: commands.Reject) -> None:
        if flow.reader is not None:
            self._reader_commands[type(flow.reader)].reject(flow.reader, command)

    def _summon(self, flow: DataFlow, command: commands.Summon) -> None:
        run(self._answer_summon(flow, command))

    async def _answer_summon(self, flow: DataFlow, command: commands.Summon) -> None:
        lease, resource = flow.reader, command.resource
        covered = lease is not None and lease.terms.covers(resource)
        can = covered and await self._reader_commands[type(lease)].summon(lease, resource)
        flow.send(commands.Response(command.sequence, states.OK if can else states.CANNOT))

    def _dismiss(self, flow: DataFlow, command: commands.Dismiss) -> None:
        if flow.reader is not None:
            self._reader_commands[type(flow.reader)].dismiss(flow.reader, command.resource)
        flow.send(commands.Response(command.sequence, states.OK))

    def _ping(self, flow: DataFlow, _command: commands.Command) -> None:
        flow.send(commands.Pong(flow.reader.group_position if flow.reader is not None else None))
