"""One data flow's life, in the IO thread: lease, connection, heartbeat; and again after every loss.

    LEASING ──202──► BINDING ──Response 200──► BOUND
       ▲                │ └──────403──► LEASING   │ connection lost, or no sign of life
       └──two failures──┘◄────── same lease ──────┘

A lost connection is answered with a new one that presents the same lease. So is a flow that the broker had given up
while the connection stood (this process was stopped, or the network was): what was sent meanwhile was dropped. When the
broker does not know the lease any more (it restarted, or the lease expired), a new one is asked for; a broker that
fenced us says so then, which is the end. Without success within `retry_deadline` it is called unreachable.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Protocol

from mtl.client.control import Call, Channel, Outcome
from mtl.client.data_endpoint import data_endpoint
from mtl.client.io import Loop, Timer
from mtl.errors import Closed, Malformed, MtlError, Refused, Unreachable
from mtl.limits import HEARTBEAT_S, PUMP, RECONNECT_DELAY_S, RECONNECT_DELAY_TOP_S
from mtl.net.endpoint import Link, Ready
from mtl.protocol.data import DataSession, OutOfTurn
from mtl.protocol.heartbeat import Heartbeat, Verdict
from mtl.protocol.states import CLIENT, FORBIDDEN, LEASE_ENDED, NEWLY_BOUND, OK, Resource
from mtl.wire import commands as c
from mtl.wire import control as w
from mtl.wire.fields import Buffer

_SOON_S = 0.01
"""The shortest time to the next look at a pulse: timers are called a little early, before the clock is there."""

_PROBE_S = 1.0
"""A Ping that somebody waits for is followed by the Lease when no Pong has come by then."""
_REBINDS = 2
"""Connections that are tried with the old lease before a new one is asked for."""

Ponged = Callable[[int | None], None]
"""Gets the group's position as the Pong tells it; None on a flow that holds no group."""


class State(Enum):
    """Where a flow stands."""

    NEW = "new"
    LEASING = "leasing"
    BINDING = "binding"
    BOUND = "bound"
    OVER = "over"


class User(Protocol):
    """A reader or a writer, on its IO side."""

    def lease_request(self) -> w.Reader | w.Writer:
        """What to ask for now."""

    def granted(self, lease: w.DataLease) -> None:
        """A lease was granted. Raises what makes it useless."""

    def refused(self, error: Refused) -> Refused | None:
        """The lease request was refused: what to make of it, or None to ask again at once."""

    def bound(self) -> None:
        """Commands may be sent now."""

    def command(self, command: c.Content | c.Confirm | c.Reject) -> None:
        """One arrived."""

    def answered(self, asked: c.Summon | c.Dismiss, ok: bool) -> None:
        """The Response to one of ours."""

    def contents(self, like: c.Content, first: int, bodies: Sequence[Buffer]) -> int:
        """Contents from `first` on arrived that are like one before them but for their bodies: how many were taken in
        together. Those that were not come as commands; so do all of a user who takes none (0).
        """

    def drained(self) -> None:
        """No more arrived for now."""

    def writable(self) -> None:
        """There is room again after a `send` that said no."""

    def down(self) -> None:
        """The connection is gone; it will be made again."""

    def failed(self, error: MtlError) -> None:
        """The end."""


class Flow:
    """See the module."""

    def __init__(self, loop: Loop, channel: Channel, user: User, *, rfc: bool = False) -> None:
        self.rfc = rfc
        """Whether the server is asked for nothing that the RFC does not have: its lease ends with the connection, and
        is shown once on each.
        """
        self.lease: w.DataLease | None = None
        self.id = loop.new_id()
        """For every lease request of this flow: the broker replaces a lease whose 202 was lost on the way."""
        self.state = State.NEW
        self.dropped = 0
        """Messages from the broker that were no command, or out of turn."""
        self._loop = loop
        self._channel = channel
        self._user = user
        self._session = DataSession(CLIENT)
        self._link: Link | None = None
        self._heartbeat = Heartbeat(loop.clock(), 0.0)
        self._timer: Timer | None = None
        self._pulse: Timer | None = None
        self._sequence = 0
        self._queue: deque[c.Command] = deque()
        self._pings: list[Ponged] = []
        self._pongs: deque[Ponged | None] = deque()
        self._lost_at: float | None = None
        self._attempts = 0
        self._requests = 0
        self._delay = 0.0
        self._reset = False
        self._leased_once = False
        self._like: c.Content | None = None
        self._tail = b""

    # --- for the reader or writer ---------------------------------------------------------------------------

    def start(self) -> None:
        """Ask for the first lease."""
        self._loop.members.add(self)
        self._lost_at = self._loop.clock()
        self._ask()

    def restart(self) -> None:
        """Let go of the lease and ask for another. Ignored when the flow has ended."""
        if self.state is State.OVER:
            return
        self._release()
        self._lost_at = self._loop.clock()
        self._unlink()
        self._user.down()
        self._ask()

    def send(self, command: c.Command) -> None:
        """Send a command that is no content; it waits for room if need be. Ignored when the flow is not bound."""
        if self._link is None or self.state is not State.BOUND:
            return
        self._session.sending(command)
        self._queue.append(command)
        self._flush()

    def send_contents(self, contents: Sequence[c.Content]) -> int:
        """Send contents, as many as there is room for: how many. `writable` will tell when there is more."""
        if self._link is None or self.state is not State.BOUND or self._queue:
            return 0
        sent = self._link.send_many(c.encode_contents(contents), [one.body for one in contents])
        if sent < len(contents):
            self._loop.poll.want_writable(self._link, True)
        if sent:
            self._heartbeat.sent(self._loop.clock())  # no Ping is needed for a while
        return sent

    def resource(self, name: str) -> Resource:
        """Where a resource stands on this connection: whether a Summon or a Dismiss of it has its place."""
        return self._session.resource(name)

    def ask(self, kind: type[c.Summon | c.Dismiss], resource: str) -> None:
        """Send a Summon or Dismiss; `answered` will tell."""
        self._sequence += 1
        self.send(kind(self._sequence, resource))

    def ping(self, then: Ponged) -> None:
        """Call `then` when the broker has answered a Ping that is sent now, or after the next rebind."""
        if self.state is State.BOUND:
            self._ping(then)
        else:
            self._pings.append(then)

    def close(
        self, then: Callable[[Outcome], None], *, within: float | None = None, in_order: bool = False
    ) -> None:
        """End the lease (a stage is sealed by it) and the connection; `then` gets the reply or why there is none.

        `in_order`: the connection ends after the lease. A queue counts what a lost connection had as delivered.
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
            ended(w.Ok())
        elif lease is None:
            ended(Refused(404, w.UNKNOWN_LEASE, "the lease is gone, and there is no other yet"))
        else:
            self._channel.submit(Call(w.LeaseClose(lease=lease.lease), ended, within=within))

    def drop(self) -> None:
        """End the connection and leave the lease to whoever ends it."""
        self._end()

    def abandoned(self) -> None:
        """The IO thread ends."""
        self._fail(Closed("the client's IO thread has ended"))

    # --- leasing --------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        self.state = State.LEASING
        try:
            request = self._user.lease_request()
        except MtlError as error:
            self._fail(error)
            return
        self._attempts = 0
        self._requests += 1
        answered = partial(self._leased, self._requests)
        self._channel.submit(Call(request, answered, within=self._left(), fresh=True))

    def _left(self) -> float:
        """Seconds until this is given up."""
        since = self._loop.clock() if self._lost_at is None else self._lost_at
        return max(0.0, since + self._channel.settings.retry_deadline - self._loop.clock())

    def _leased(self, request: int, outcome: Outcome) -> None:
        if self.state is not State.LEASING or request != self._requests:
            return  # closed meanwhile, or `restart` asked again; the broker ends or replaces the lease (Flow.id)
        if isinstance(outcome, w.DataLease):
            try:
                self._user.granted(outcome)
            except MtlError as error:
                self._fail(error)
                return
            self._reset = False
            self._leased_once = True
            self.lease = outcome
            self._connect()
        elif isinstance(outcome, Refused) and outcome.reason == w.ALREADY_LEASED and not self._reset:
            self._reset = True
            self._channel.forget_session()
            self._ask()
        elif isinstance(outcome, Refused):
            final = self._user.refused(outcome)
            if final is None:
                self._ask()
            else:
                self._fail(final)
        else:
            self._fail(outcome if isinstance(outcome, MtlError) else Malformed("a reply that is no lease"))

    def _release(self) -> None:
        if self.lease is not None and not self.rfc:
            self._channel.submit(Call(w.LeaseClose(lease=self.lease.lease), lambda _: None))
            self.lease = None

    # --- connecting -----------------------------------------------------------------------------------------

    def _connect(self) -> None:
        assert self.lease is not None
        self._unlink()
        self.state = State.BINDING
        self._session = DataSession(CLIENT)
        try:
            endpoint = data_endpoint(self._channel.settings.endpoint, self.lease)
            self._link = self._loop.network.data(
                endpoint, packed=self.lease.packed, curve=self._channel.settings.curve
            )
        except MtlError as error:
            self._fail(error)
            return
        self._loop.poll.add(self._link, self)
        self._timer = self._loop.after(self._channel.settings.request_timeout, self._lost)
        self._sequence += 1
        lease = c.Lease(self._sequence, self.lease.lease)
        self._session.sending(lease)
        self._link.send(*c.encode(lease))

    def _bound(self) -> None:
        assert self.lease is not None
        if self._timer is not None:
            self._timer.cancel()
        self.state = State.BOUND
        self._lost_at = None
        self._attempts = 0
        self._delay = 0.0
        self._heartbeat = Heartbeat(self._loop.clock(), self._interval(self.lease))
        self._look_at_the_pulse()
        self._user.bound()
        pings, self._pings = self._pings, []
        for then in pings:
            self._ping(then)

    def _lost(self) -> None:
        """The connection broke, could not be made, or is silent: try again."""
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
        if self._lost_at is not None and not self._left():
            self._fail(Unreachable(self._endpoint(), now - self._lost_at, "connecting the data flow"))
            return
        self._attempts += 1
        self._delay = min(max(RECONNECT_DELAY_S, self._delay * 2), RECONNECT_DELAY_TOP_S)
        again = self._connect if self._attempts < _REBINDS else self._ask
        self._timer = self._loop.after(self._delay, again)

    def _endpoint(self) -> str:
        return self._channel.settings.endpoint

    # --- what the socket says -------------------------------------------------------------------------------

    def ready(self, link: Link, what: Ready) -> None:
        """Take in what arrived, in order, and then the news of an end."""
        if link is not self._link:
            return
        if Ready.WRITABLE in what:
            self._loop.poll.want_writable(link, False)
            self._flush()
            if not self._queue and link is self._link:
                self._user.writable()
        if Ready.READABLE in what and link is self._link:
            self._heartbeat.heard(self._loop.clock())
            self._take_in(link)
        if Ready.DOWN in what and link is self._link:
            self._lost()

    def _take_in(self, link: Link) -> None:
        headers, bodies = link.receive_many(PUMP)
        at = single = 0  # below `single` everything is looked at by itself
        while at < len(headers):
            alike = self._alike(headers, at) if at >= single else 0
            together = self._together(headers[at], bodies[at : at + alike]) if alike else 0
            if not together:
                single = max(single, at + alike)  # its user wants none of these together
                self._one(headers[at], bodies[at])
            if link is not self._link:
                return
            at += together or 1
        self._user.drained()

    def _alike(self, headers: Sequence[bytes], at: int) -> int:
        """How many contents from `at` on follow each other and are like the last one that came alone: looking at each
        would cost more than all the rest.
        """
        header = headers[at]
        if self._like is None or not header.endswith(self._tail):
            return 0
        return c.content_run(headers, at, self._tail, _sequence(header))

    def _together(self, header: bytes, bodies: Sequence[Buffer]) -> int:
        """How many such contents, of which the first has this header, were taken in together."""
        assert self._like is not None
        try:
            self._session.received(self._like)
        except OutOfTurn:
            return 0
        return self._user.contents(self._like, _sequence(header), bodies)

    def _one(self, header: bytes, body: Buffer) -> None:
        try:
            command = c.decode(header, body)
            answered = self._session.received(command)
        except (Malformed, OutOfTurn):
            self.dropped += 1
            return
        if isinstance(command, c.Content):
            self._like, self._tail = command, header[9:]
            self._user.command(command)
        elif isinstance(command, c.Confirm | c.Reject):
            self._user.command(command)
        elif isinstance(command, c.Ping):
            self.send(c.Pong())
        elif isinstance(command, c.Pong):
            self._pong(command.position)
        elif answered is not None:
            if isinstance(answered.asked, c.Lease):
                self._answered(answered.code)
            elif answered.code == FORBIDDEN:
                self._lost()  # the broker has given this flow up meanwhile: the lease has to be shown again
            else:
                self._user.answered(answered.asked, answered.ok)
        elif command == c.Response(LEASE_ENDED, FORBIDDEN):
            self._lost()  # the next request for a lease tells why

    def _answered(self, code: int) -> None:
        """The Response to a Lease."""
        if code in {OK, NEWLY_BOUND}:
            if self.state is State.BINDING:
                self._bound()
            elif code == NEWLY_BOUND:
                self._lost()  # the broker had given this flow up, and dropped what was sent since
        else:
            # The broker restarted, the lease expired, or we were fenced: the next control request tells which.
            was_bound = self.state is State.BOUND
            self.lease = None
            self._unlink()
            if was_bound:
                self._lost_at = self._loop.clock()
                self._user.down()
            self._ask()

    # --- sending --------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        while self._queue and self._link is not None:
            command = self._queue[0]
            if not self._link.send(*c.encode(command)):
                self._loop.poll.want_writable(self._link, True)
                return
            self._queue.popleft()
            self._heartbeat.sent(self._loop.clock())

    def _ping(self, then: Ponged | None) -> None:
        self._pongs.append(then)
        self.send(c.Ping())
        if then is not None and not self.rfc:
            self._loop.after(_PROBE_S, lambda: self._probe(then))

    def _probe(self, then: Ponged) -> None:
        """A Ping that somebody waits for has no Pong: show the lease again, and the broker says whether it holds."""
        if then in self._pongs and self.state is State.BOUND and self.lease is not None:
            self._sequence += 1
            self.send(c.Lease(self._sequence, self.lease.lease))

    def _pong(self, position: int | None) -> None:
        then = self._pongs.popleft() if self._pongs else None
        if then is not None:
            then(position)

    def _interval(self, lease: w.DataLease) -> float:
        """Seconds of silence before a Ping: ours to say, else the broker's, else what is usual (MTL-103)."""
        told = (self._channel.settings.heartbeat, lease.heartbeat)
        return next((seconds for seconds in told if seconds is not None), HEARTBEAT_S)

    def _beat(self) -> None:
        verdict = self._heartbeat.check(self._loop.clock())
        if verdict is Verdict.DEAD:
            self._lost()
            return
        if verdict is Verdict.PING:
            self._ping(None)
        self._look_at_the_pulse()

    def _look_at_the_pulse(self) -> None:
        """When something is due as far as is known now: an idle flow costs a round of the loop per interval."""
        due = self._heartbeat.due
        if due < math.inf:
            self._pulse = self._loop.after(max(_SOON_S, due - self._loop.clock()), self._beat)

    # --- the end --------------------------------------------------------------------------------------------

    def _unlink(self) -> None:
        """Close the connection, if there is one. Pings that somebody waits for are sent again on the next."""
        for timer in (self._timer, self._pulse):
            if timer is not None:
                timer.cancel()
        self._timer = self._pulse = None
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
    """Of a Content's header."""
    return int.from_bytes(header[1:9], "big")
