"""One data flow, in the loop: lease, connection, heartbeat, and recovery after every loss.

    LEASING ──202──► BINDING ──Response 200──► BOUND
       ▲                │ └──────403──► LEASING   │ connection lost, or no sign of life
       └──two failures──┘◄────── same lease ──────┘

After a lost connection, a new one presents the same lease. The same happens if the broker had given up the flow while
the connection was up (this process or the network was stopped), and so dropped messages. If the broker does not know
the lease any more (it restarted, or the lease expired), the flow requests a new lease; if the client was fenced, that
request fails, and the flow ends. Without success within `retry_deadline` the error is `Unreachable`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial

from mtl.client.control import Call, Channel, Outcome
from mtl.client.data_endpoint import data_endpoint
from mtl.client.doubt import Doubt
from mtl.client.flow_user import User
from mtl.client.limits import TURN_MESSAGES
from mtl.client.loop import Loop, Timer
from mtl.errors import Closed, Malformed, MtlError, Refused, Unreachable
from mtl.limits import HEARTBEAT_S, RECONNECT_DELAY_S, RECONNECT_DELAY_TOP_S
from mtl.net.endpoint import Link, LinkEvents
from mtl.protocol.backoff import Backoff
from mtl.protocol.data import DataSession, OutOfTurn
from mtl.protocol.heartbeat import Heartbeat, HeartbeatVerdict
from mtl.protocol.states import CLIENT, FORBIDDEN, LEASE_ENDED, NEWLY_BOUND, OK, ResourceState
from mtl.wire import commands, control
from mtl.wire.fields import Buffer

_SOON_S = 0.01
"""The shortest time to the next check of the heartbeat, because timers may fire a little early."""

_PROBE_S = 1.0
"""If a caller waits for a Pong and none has come after this time, the Lease is sent again."""
_REBINDS = 2
"""Connections that are tried with the old lease before the request for a new one."""

Ponged = Callable[[int | None], None]
"""Called with the group's position in the Pong; None on a flow that holds no group."""


class State(Enum):
    """The state of a flow."""

    NEW = "new"
    LEASING = "leasing"
    BINDING = "binding"
    BOUND = "bound"
    OVER = "over"


class ClientFlow:
    """See the module."""

    def __init__(self, loop: Loop, channel: Channel, user: User, *, rfc: bool = False) -> None:
        self.rfc = rfc
        """Whether only RFC 11 is used: a lease then ends with its connection, on which it is presented once."""
        self.lease: control.DataLease | None = None
        self.id = loop.new_id()
        """The `request_id` of all lease requests of this flow: the broker replaces a lease whose 202 was lost."""
        self.state = State.NEW
        self.dropped = 0
        """The number of messages from the broker that were not a command, or came in the wrong state."""
        self._loop = loop
        self._channel = channel
        self._user = user
        self._session = DataSession(CLIENT)
        self._link: Link | None = None
        self._heartbeat = Heartbeat(loop.clock(), 0.0)
        self._timer: Timer | None = None
        self._ping_timer: Timer | None = None
        self._sequence = 0
        self._queue: deque[commands.Command] = deque()
        self._pings: list[Ponged] = []
        self._pongs: deque[Ponged | None] = deque()
        self._lost_at: float | None = None
        self._attempts = 0
        self._requests = 0
        self._backoff = Backoff(RECONNECT_DELAY_S, RECONNECT_DELAY_TOP_S)
        self._reset = False
        self._leased_once = False
        self._like: commands.Content | None = None
        self._tail = b""
        self._doubt = Doubt(loop.clock)

    # --- for the reader or writer ---------------------------------------------------------------------------

    def start(self) -> None:
        """Request the first lease."""
        self._loop.members.add(self)
        self._lost_at = self._loop.clock()
        self._request_lease()

    def restart(self, *, release: bool = True) -> None:
        """Request another lease: after releasing the present one, or in its place in one step. Ignored at the end."""
        if self.state is State.OVER:
            return
        if release:
            self._release()
        self._lost_at = self._loop.clock()
        self._unlink()
        self._user.down()
        self._request_lease()

    def send(self, command: commands.Command) -> None:
        """Send a command other than Content; it waits for room if necessary. Ignored if the flow is not bound."""
        if self._link is None or self.state is not State.BOUND:
            return
        self._session.sending(command)
        self._queue.append(command)
        self._flush()

    def send_contents(self, contents: Sequence[commands.Content]) -> int:
        """Send contents as far as there is room, and return their number. `writable` reports room for the rest."""
        if self._link is None or self.state is not State.BOUND or self._queue:
            return 0
        sent = self._link.send_many(
            commands.encode_contents(contents), [content.body for content in contents]
        )
        if sent < len(contents):
            self._loop.poll.watch_writable(self._link, True)
        if sent:
            self._note_sent()  # no Ping is needed for one interval
        return sent

    def resource(self, name: str) -> ResourceState:
        """The state of a resource on this connection: whether a Summon or a Dismiss may be sent."""
        return self._session.resource(name)

    def send_request(self, kind: type[commands.Summon | commands.Dismiss], resource: str) -> None:
        """Send a Summon or Dismiss; `answered` is called with its Response."""
        self._sequence += 1
        self.send(kind(self._sequence, resource))

    @property
    def is_doubtful(self) -> bool:
        """Whether the broker may have given up this flow (`mtl.client.doubt`). From any thread."""
        return self._doubt.exists

    def prove(self) -> None:
        """Present the lease again if the flow is doubtful. `down` or `proven` follows."""
        if self._doubt.sent(self._loop.clock()):
            self._present_in_doubt()

    def ping(self, then: Ponged) -> None:
        """Send a Ping now, or after the next bind, and call `then` with its Pong."""
        if self.state is State.BOUND:
            self._ping(then)
        else:
            self._pings.append(then)

    def close(
        self, then: Callable[[Outcome], None], *, within: float | None = None, in_order: bool = False
    ) -> None:
        """End the lease, which seals a stage, and the connection. `then` gets the reply or the error.

        `in_order`: end the connection after the lease. (If the connection ends first, a queue counts its contents as
        delivered.)
        """
        lease, known, link = self.lease, self.state is not State.OVER, self._link
        if link is not None and in_order:
            self._loop.poll.remove(link)
            self._link = None
        self._end()

        def ended(outcome: Outcome) -> None:
            if link is not None and in_order:
                link.close()
            then(outcome)

        if not known or not self._leased_once:
            ended(Closed("there is no lease"))
        elif self.rfc:
            ended(control.Ok())
        elif lease is None:
            ended(Refused(404, control.UNKNOWN_LEASE, "the lease has ended, and no other one is granted yet"))
        else:
            self._channel.submit(Call(control.LeaseClose(lease=lease.lease), ended, within=within))

    def drop(self) -> None:
        """End the connection, but not the lease."""
        self._end()

    def abandoned(self, error: MtlError) -> None:
        """The loop ends."""
        self._fail(error)

    # --- leasing --------------------------------------------------------------------------------------------

    def _request_lease(self) -> None:
        self.state = State.LEASING
        try:
            request = self._user.lease_request()
        except MtlError as error:
            self._fail(error)
            return
        self._attempts = 0
        self._requests += 1
        answered = partial(self._leased, self._requests)
        self._channel.submit(Call(request, answered, within=self._seconds_left(), fresh=True))

    def _seconds_left(self) -> float:
        """Seconds until the retry deadline."""
        since = self._loop.clock() if self._lost_at is None else self._lost_at
        return max(0.0, since + self._channel.settings.retry_deadline - self._loop.clock())

    def _leased(self, request: int, outcome: Outcome) -> None:
        if self.state is not State.LEASING or request != self._requests:
            return  # closed meanwhile, or `restart` asked again; the broker ends or replaces the lease (ClientFlow.id)
        if isinstance(outcome, control.DataLease):
            try:
                self._user.granted(outcome)
            except MtlError as error:
                self._fail(error)
                return
            self._reset = False
            self._leased_once = True
            self.lease = outcome
            self._connect()
        elif isinstance(outcome, Refused) and outcome.reason == control.ALREADY_LEASED and not self._reset:
            self._reset = True
            self._channel.forget_session()
            self._request_lease()
        elif isinstance(outcome, Refused):
            final = self._user.refused(outcome)
            if final is None:
                self._request_lease()
            else:
                self._fail(final)
        else:
            self._fail(outcome if isinstance(outcome, MtlError) else Malformed("a reply that is not a lease"))

    def _release(self) -> None:
        if self.lease is not None and not self.rfc:
            self._channel.submit(Call(control.LeaseClose(lease=self.lease.lease), lambda _: None))
            self.lease = None

    # --- connecting -----------------------------------------------------------------------------------------

    def _connect(self) -> None:
        assert self.lease is not None
        self._unlink()
        self.state = State.BINDING
        self._session = DataSession(CLIENT)
        try:
            endpoint = data_endpoint(self._channel.settings.endpoint, self.lease)
            self._sequence += 1
            lease = commands.Lease(self._sequence, self.lease.lease)
            frames = commands.encode(lease)
            self._link = self._loop.network.data(
                endpoint, packed=self.lease.packed, curve=self._channel.curve
            )
        except MtlError as error:
            self._fail(error)
            return
        self._loop.poll.add(self._link, self)
        self._timer = self._loop.after(self._channel.settings.request_timeout, self._lost)
        self._session.sending(lease)
        self._link.send(*frames)

    def _bound(self) -> None:
        assert self.lease is not None
        if self._timer is not None:
            self._timer.cancel()
        self.state = State.BOUND
        self._lost_at = None
        self._attempts = 0
        self._backoff.succeeded()
        self._heartbeat = Heartbeat(self._loop.clock(), self._interval(self.lease))
        self._doubt.bound(self.lease)
        self._set_ping_timer()
        self._user.bound()
        pings, self._pings = self._pings, []
        for then in pings:
            self._ping(then)

    def _lost(self) -> None:
        """Connect again, because the connection broke, could not be made, or is silent."""
        was_bound = self.state is State.BOUND
        if self.state not in {State.BOUND, State.BINDING}:
            return
        self._unlink()
        self.state = State.BINDING
        now = self._loop.clock()
        if was_bound:
            self._lost_at = now
            self._user.down()
            self._connect()
            return
        if self._lost_at is not None and not self._seconds_left():
            self._fail(Unreachable(self._endpoint(), now - self._lost_at, "connecting the data flow"))
            return
        self._attempts += 1
        again = self._connect if self._attempts < _REBINDS else self._request_lease
        self._timer = self._loop.after(self._backoff.failed(), again)

    def _endpoint(self) -> str:
        return self._channel.settings.endpoint

    # --- receiving ------------------------------------------------------------------------------------------

    def ready(self, link: Link, events: LinkEvents) -> None:
        """Handle events of the socket: messages in order, and then the end of the connection."""
        if link is not self._link:
            return
        if LinkEvents.WRITABLE in events:
            self._loop.poll.watch_writable(link, False)
            self._flush()
            if not self._queue and link is self._link:
                self._user.writable()
        if LinkEvents.READABLE in events and link is self._link:
            self._heartbeat.received(self._loop.clock())
            self._receive_messages(link)
        if LinkEvents.DOWN in events:
            while link is self._link and self._receive_messages(link):
                pass
            if link is self._link:
                self._lost()

    def _receive_messages(self, link: Link) -> bool:
        """Handle messages that have arrived, up to TURN_MESSAGES. Returns whether there were any."""
        headers, bodies = link.receive_many(TURN_MESSAGES)
        at = single = 0  # messages below `single` are handled one by one
        while at < len(headers):
            alike = self._count_alike(headers, at) if at >= single else 0
            together = self._pass_run(headers[at], bodies[at : at + alike]) if alike else 0
            if not together:
                single = max(single, at + alike)  # the user accepts none of these together
                self._handle_message(headers[at], bodies[at])
            if link is not self._link:
                break
            at += together or 1
        if headers:
            self._user.drained()
        return bool(headers)

    def _count_alike(self, headers: Sequence[bytes], at: int) -> int:
        """The number of contents from `at` on with consecutive numbers that are otherwise like the last single one.
        Decoding each of them would cost more than all other work.
        """
        header = headers[at]
        if self._like is None or not header.endswith(self._tail):
            return 0
        return commands.content_run(headers, at, self._tail, _sequence(header))

    def _pass_run(self, header: bytes, bodies: Sequence[Buffer]) -> int:
        """Pass these contents to the user. Returns the number that it accepted. `header` is of the first one."""
        assert self._like is not None
        try:
            self._session.received(self._like)
        except OutOfTurn:
            return 0
        return self._user.contents(self._like, _sequence(header), bodies)

    def _handle_message(self, header: bytes, body: Buffer) -> None:
        try:
            command = commands.decode(header, body)
            answered = self._session.received(command)
        except (Malformed, OutOfTurn):
            self.dropped += 1
            return
        if isinstance(command, commands.Content):
            self._like, self._tail = command, header[9:]
            self._user.command(command)
        elif isinstance(command, commands.Confirm | commands.Reject):
            self._user.command(command)
        elif isinstance(command, commands.Ping):
            self.send(commands.Pong())
        elif isinstance(command, commands.Pong):
            self._pong(command.position)
        elif answered is not None:
            if isinstance(answered.request, commands.Lease):
                self._answered(answered.request.sequence, answered.code)
            elif answered.code == FORBIDDEN:
                self._lost()  # the broker has given up this flow meanwhile: present the lease again
            else:
                self._user.answered(answered.request, answered.ok)
        elif command == commands.Response(LEASE_ENDED, FORBIDDEN):
            self._lost()  # the reply to the next lease request has the reason

    def _answered(self, sequence: int, code: int) -> None:
        """The Response to a Lease."""
        if code in {OK, NEWLY_BOUND}:
            if self.state is State.BINDING:
                self._bound()
            elif code == NEWLY_BOUND:
                self._lost()  # the broker had given up this flow, and dropped messages sent since
            elif self._doubt.ends_with(sequence):
                self._user.proven()
        else:
            # The broker restarted, the lease expired, or the client was fenced: the next lease request shows it.
            was_bound = self.state is State.BOUND
            self.lease = None
            self._unlink()
            if was_bound:
                self._lost_at = self._loop.clock()
                self._user.down()
            self._request_lease()

    # --- sending --------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        while self._queue and self._link is not None:
            command = self._queue[0]
            if not self._link.send(*commands.encode(command)):
                self._loop.poll.watch_writable(self._link, True)
                return
            self._queue.popleft()
            self._note_sent()

    def _ping(self, then: Ponged | None) -> None:
        self._pongs.append(then)
        self.send(commands.Ping())
        if then is not None and not self.rfc:
            self._loop.after(_PROBE_S, lambda: self._probe(then))

    def _probe(self, then: Ponged) -> None:
        """Present the lease again if the Pong is still missing: the Response shows whether the lease is valid."""
        if then in self._pongs:
            self._present()

    def _present(self) -> None:
        if self.state is State.BOUND and self.lease is not None:
            self._sequence += 1
            self.send(commands.Lease(self._sequence, self.lease.lease))

    def _note_sent(self) -> None:
        now = self._loop.clock()
        self._heartbeat.sent(now)
        if self._doubt.sent(now):
            self._present_in_doubt()

    def _present_in_doubt(self) -> None:
        self._doubt.asked(self._sequence + 1)
        self._present()

    def _pong(self, position: int | None) -> None:
        then = self._pongs.popleft() if self._pongs else None
        if then is not None:
            then(position)

    def _interval(self, lease: control.DataLease) -> float:
        """Seconds of silence before a Ping: the client's setting, else the broker's, else HEARTBEAT_S (MTL-103)."""
        intervals = (self._channel.settings.heartbeat, lease.heartbeat)
        return next((seconds for seconds in intervals if seconds is not None), HEARTBEAT_S)

    def _check_heartbeat(self) -> None:
        verdict = self._heartbeat.check(self._loop.clock())
        if verdict is HeartbeatVerdict.DEAD:
            self._lost()
            return
        if verdict is HeartbeatVerdict.PING:
            self._ping(None)
        self._set_ping_timer()

    def _set_ping_timer(self) -> None:
        """Set the timer of the next check: an idle flow needs one round of the loop per heartbeat interval."""
        due = self._heartbeat.due
        if due < math.inf:
            self._ping_timer = self._loop.after(max(_SOON_S, due - self._loop.clock()), self._check_heartbeat)

    # --- the end --------------------------------------------------------------------------------------------

    def _unlink(self) -> None:
        """Close the connection, if any. Pings with a waiting caller are sent again on the next connection."""
        for timer in (self._timer, self._ping_timer):
            if timer is not None:
                timer.cancel()
        self._timer = self._ping_timer = None
        self._queue.clear()
        self._like = None
        self._pings = [then for then in self._pongs if then is not None] + self._pings
        self._pongs.clear()
        if self._link is not None:
            self._loop.poll.remove(self._link)
            self._link.close()
            self._link = None

    def _end(self) -> None:
        self._unlink()
        self.state = State.OVER
        self._loop.members.discard(self)

    def _fail(self, error: MtlError) -> None:
        if self.state is not State.OVER:
            self._end()
            self._user.failed(error)


def _sequence(header: bytes) -> int:
    """The sequence number in a Content's header."""
    return int.from_bytes(header[1:9], "big")
