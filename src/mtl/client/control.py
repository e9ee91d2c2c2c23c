"""Requests and replies: one control session over REQ sockets, which are replaced if there is no answer.

Runs in the loop; applications have a `Call`. The session is opened, authenticated and given its profile before
the first request, and again if the broker has forgotten it (a restart); callers do not see this.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from mtl.client.loop import Loop, Timer
from mtl.client.settings import Settings
from mtl.errors import Closed, Malformed, MtlError, OptionError, Refused, Unreachable
from mtl.limits import RECONNECT_DELAY_S, RECONNECT_DELAY_TOP_S
from mtl.net.endpoint import Curve, Link, LinkEvents
from mtl.protocol.backoff import Backoff
from mtl.protocol.control import ControlSession, kind_of
from mtl.protocol.sasl.client import Authentication, Credentials
from mtl.protocol.states import Control
from mtl.wire import control
from mtl.wire.fields import Buffer

_MAX_REQUESTS = 16
"""Most exchanges before the answer to the request itself: Open, the steps of SASL, Profile, and all of these a
second time."""

Outcome = control.Reply | MtlError
Done = Callable[[Outcome], None]


class Call:
    """One pending request; with None, only the session is made ready. `done` is called once, in the loop.

    `within` bounds all attempts, in seconds (None: the connection's `retry_deadline`). `patience` is the extra time for
    which the broker may hold the request: a long poll. `fresh` uses a new session for every attempt after the first:
    the broker may have granted a lease whose reply was lost, and leases per session are limited. `in_flight` is true
    while the request itself is sent and its connection is up.
    """

    __slots__ = (
        "attempts",
        "cancelled",
        "done",
        "fresh",
        "in_flight",
        "patience",
        "request",
        "requests",
        "started",
        "within",
    )

    def __init__(
        self,
        request: control.Request | None,
        done: Done,
        *,
        within: float | None = None,
        patience: float = 0.0,
        fresh: bool = False,
    ) -> None:
        self.request = request
        self.done = done
        self.within = within
        self.patience = patience
        self.fresh = fresh
        self.attempts = 0
        self.requests = 0
        self.started = 0.0
        self.in_flight = False
        self.cancelled = False
        """Whether its application does not wait for it any more."""


class Channel:
    """One control session: sends requests one after the other, each until its answer or its deadline."""

    def __init__(self, loop: Loop, settings: Settings, curve: Curve | None) -> None:
        """`curve` has the keys of `settings`, which the sessions and data flows of a connection share."""
        self.settings = settings
        self.curve = curve
        self.ready_reply: control.Ready | None = None
        self._loop = loop
        self._session = ControlSession()
        self._token: str | None = None
        self._authentication: Authentication | None = None
        self._second_login = False
        """Whether the second log-in of this session has begun."""
        self._offered: control.Unauthorized | control.Challenged | None = None
        self._calls: deque[Call] = deque()
        self._sent_request: control.Request | None = None
        self._unanswered = control.ConnectionOpen.command
        """The command of the last request, for the error message: a server may answer only Connection.Open."""
        self._link: Link | None = None
        self._up = False
        """Whether the link is connected to the broker. Messages that are sent before wait in the socket."""
        self._timer: Timer | None = None
        self._backoff = Backoff(RECONNECT_DELAY_S, RECONNECT_DELAY_TOP_S)
        self._denied = False
        self._pushed_back: Refused | None = None
        """The refusal with "try again later" of the last attempt that ran until its timeout, if any."""
        self._setback: tuple[str, Refused] | None = None
        """The last reply that led back to an earlier step of the opening, and its command: for the error of a server
        that sends such replies without end.
        """
        self._closed = False

    # --- for the rest of the loop ----------------------------------------------------------------------

    @property
    def is_busy(self) -> bool:
        """Whether a request is without its answer."""
        return bool(self._calls)

    def submit(self, call: Call) -> None:
        """Send the request after all earlier ones are answered."""
        if self._closed or not self._loop.running:
            call.done(Closed("the connection is closed"))
            return
        self._loop.members.add(self)
        call.started = self._loop.clock()
        self._calls.append(call)
        if len(self._calls) == 1:
            self._attempt()

    def cancel(self, call: Call) -> None:
        """Drop a call that its application does not wait for any more, so that later ones need not wait for it. One
        that is with the broker stays: its answer, or its timeout, ends it.
        """
        if call not in self._calls or (call is self._calls[0] and self._up):
            return
        if call is self._calls[0]:
            self._drop()
            self._finish(Closed("the call was interrupted"))
        else:
            self._calls.remove(call)
            call.done(Closed("the call was interrupted"))

    def forget_session(self) -> None:
        """Begin the next request with Connection.Open."""
        self._session = ControlSession()
        self._token = None
        self._second_login = False

    def close(self, error: MtlError | None = None) -> None:
        """Fail the pending requests with `error` (default: `Closed`), and close the socket."""
        self._closed = True
        self._loop.members.discard(self)
        self._drop()
        while self._calls:
            self._calls.popleft().done(error or Closed("the connection was closed"))

    def abandoned(self, error: MtlError) -> None:
        """The loop ends."""
        self.close(error)

    # --- attempts -------------------------------------------------------------------------------------------

    def _attempt(self) -> None:
        """Send the first call of the queue, on a new socket if the last one was closed."""
        call = self._calls[0]
        within = self.settings.retry_deadline if call.within is None else call.within
        left = call.started + within + call.patience - self._loop.clock()
        if left <= 0 and call.attempts:
            waited = self._loop.clock() - call.started
            self._finish(
                self._pushed_back
                or Unreachable(self.settings.endpoint, waited, self._unanswered, denied=self._denied)
            )
            return
        if call.attempts and call.fresh:
            self.forget_session()
        call.attempts += 1
        call.requests = 0
        patience = self.settings.request_timeout + call.patience
        if patience <= left:
            self._pushed_back = None
        self._timer = self._loop.after(max(0.0, min(patience, left)), self._timed_out)
        self._send_next()

    def _send_next(self) -> None:
        """Send the next request for the session's state: a step of the opening, or the call's own request."""
        call = self._calls[0]
        call.requests += 1
        if call.requests > _MAX_REQUESTS and self._setback is not None:
            command, last = self._setback
            message = f"the server answered {command} with this again after the session was opened again"
            self._finish(Refused(last.status, last.reason, f"{message}: {last.message}", **last.members))
            return
        try:
            request = self._next(call)
            if request is None:
                assert self.ready_reply is not None
                self._finish(self.ready_reply)
                return
            with_token = request
            if self._token is not None and not isinstance(request, control.ConnectionOpen):
                with_token = msgspec.structs.replace(request, session=self._token)
            name, body = control.encode_request(with_token)
            if self._link is None:
                self._link = self._loop.network.request(self.settings.endpoint, self.curve)
                self._loop.poll.add(self._link, self)
        except MtlError as error:
            self._finish(error)
            return
        self._sent_request, self._unanswered = request, request.command
        if not self._link.send(name, body):
            self._retry()
            return
        call.in_flight = self._up and request is call.request

    def _next(self, call: Call) -> control.Request | None:
        """The request to send in the current state; None if the session is ready and the call has no request."""
        state = self._session.state
        if state is Control.NEW:
            return control.ConnectionOpen(
                protocol=control.Protocol(), virtual_host=self.settings.virtual_host
            )
        if state is Control.UNAUTHORIZED and isinstance(self._offered, control.Unauthorized):
            if self._authentication is None:
                self._authentication = Authentication(self.settings.credentials())
            return self._authentication.begin(self._offered.mechanisms)
        if (
            state is Control.CHALLENGED
            and isinstance(self._offered, control.Challenged)
            and self._authentication is not None
        ):
            return self._authentication.proceed(self._offered)
        if state is Control.READY:
            self._check_profile()
            return control.ConnectionProfile(profile=self.settings.profile)
        return call.request

    def _check_profile(self) -> None:
        """Check that the profile is one of those in the 201 (MTL-36)."""
        offered = self.ready_reply.profiles if self.ready_reply is not None else []
        if self.settings.profile.lower() not in map(str.lower, offered):
            profiles = ", ".join(offered) or "none"
            raise OptionError(f"the server has no profile {self.settings.profile!r}; it offers {profiles}")

    def _timed_out(self) -> None:
        self._drop()
        self._attempt()

    def _retry(self) -> None:
        """Start the next attempt after a pause, because this one failed before its timeout."""
        self._drop()
        self._timer = self._loop.after(self._backoff.failed(), self._attempt)

    def _drop(self) -> None:
        """Close the socket: a REQ that waits for a reply cannot send. Without a session token the session ends with it
        (PROTOCOL.md 2).
        """
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sent_request, self._up = None, False
        if self._calls:
            self._calls[0].in_flight = False
        if self._link is not None:
            self._loop.poll.remove(self._link)
            self._link.close()
            self._link = None
            if self._token is None:
                self.forget_session()

    # --- replies --------------------------------------------------------------------------------------------

    def ready(self, link: Link, events: LinkEvents) -> None:
        """Handle events of the socket."""
        if link is not self._link:
            return
        if LinkEvents.UP in events:
            self._up = True
            if self._calls:
                self._calls[0].in_flight = (
                    self._sent_request is not None and self._sent_request is self._calls[0].request
                )
        if LinkEvents.READABLE in events and self._sent_request is not None:
            frames = link.receive()
            if frames is not None:
                self._answered(frames[0], frames[1])
            elif link.malformed:
                self._unusable("another number of frames than two")
        if LinkEvents.DOWN in events and link is self._link:
            self._denied = LinkEvents.DENIED in events
            if self._sent_request is not None:
                self._retry()
            else:
                self._drop()

    def _answered(self, status: bytes, body: Buffer) -> None:
        assert self._sent_request is not None
        request, self._sent_request = self._sent_request, None
        self._backoff.succeeded()
        try:
            reply = control.decode_reply([status, body], type(request))
        except Malformed as error:
            self._unusable(str(error))
            return
        except Refused as error:
            self._refused(request, error)
            return
        self._session.replied(kind_of(request), reply.code)
        if isinstance(reply, control.Ready):
            try:
                self._handle_ready(request, reply)
            except MtlError as error:
                self.forget_session()
                self._finish(error)
                return
        elif isinstance(reply, control.Unauthorized | control.Challenged):
            if not isinstance(request, control.ConnectionAuthorize):
                self._authentication = None
                self._setback = request.command, Refused(401, control.NOT_AUTHORIZED, "log in")
            self._offered = reply
        elif request is self._calls[0].request:
            self._finish(reply)
            return
        self._send_next()

    def _unusable(self, problem: str) -> None:
        """Fail the call: the server would send the same reply again."""
        self._drop()
        self.forget_session()
        server = f"the server at {self.settings.endpoint} answered {self._unanswered}"
        self._finish(Malformed(f"{server} with a reply that cannot be used: {problem}"))

    def _handle_ready(self, request: control.Request, reply: control.Ready) -> None:
        """Handle a 201. Credentials are sent even if the broker needs none: the rights depend on the user, and the
        broker shows by the password's proof that it is the right broker.
        """
        self.ready_reply = reply
        self._token = reply.session
        logged_in = self._authentication is not None and isinstance(request, control.ConnectionAuthorize)
        if self._authentication is not None and logged_in:
            self._authentication.finish(reply)
        credentials, second = self.settings.credentials(), self.settings.second_login()
        if not logged_in and credentials.insist:
            self._log_in(credentials)
        elif second is not None and not self._second_login:
            self._second_login = True
            self._log_in(*second)

    def _log_in(self, credentials: Credentials, peer: str | None = None) -> None:
        """Authenticate although the broker does not ask for it."""
        self._authentication = Authentication(credentials, peer)
        self._offered = control.Unauthorized(mechanisms=credentials.usable())
        self._session.suspended()

    def _refused(self, request: control.Request, error: Refused) -> None:
        self._setback = request.command, error
        if error.reason == control.NOT_OPEN and not isinstance(request, control.ConnectionOpen):
            self.forget_session()
            self._send_next()
        elif error.reason == control.NO_PROFILE and not isinstance(request, control.ConnectionProfile):
            self._session.state = Control.READY
            self._send_next()
        elif error.status == 503 and error.reason in {control.OVERLOADED, control.READ_ONLY}:
            self._pushed_back = error
            self._retry()
        else:
            self._finish(error)

    def _finish(self, outcome: Outcome) -> None:
        """End the first call, and start the next one."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if isinstance(outcome, Unreachable):
            self._drop()
        self._pushed_back = None
        call = self._calls.popleft()
        if self._calls:
            self._attempt()
        call.done(outcome)
