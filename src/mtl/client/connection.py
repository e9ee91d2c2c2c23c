"""A connection to a broker: requests, and the readers and writers that it opens."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Literal, Self
from uuid import uuid4

from mtl.client.consumer import Consumer
from mtl.client.control import Call, Channel, Outcome, Waiter
from mtl.client.deliveries import ConsumerOptions, Deliveries
from mtl.client.feed import Feed
from mtl.client.incoming import Incoming, ReaderOptions, Start
from mtl.client.io import Loop, loop
from mtl.client.pump import Pump, WriterOptions
from mtl.client.reader import Reader
from mtl.client.resources import Administration, listed
from mtl.client.rfc_feed import RfcFeed
from mtl.client.settings import DEFAULT_ENDPOINT, Settings
from mtl.client.writer import Writer
from mtl.errors import Closed, MtlError, OptionError, Refused, Unreachable
from mtl.limits import (
    CONSUMER_WINDOW_CONTENTS,
    PLAIN_WINDOW_CONTENTS,
    READER_WINDOW,
    READER_WINDOW_CONTENTS,
    REQUEST_TIMEOUT_S,
    RETRY_DEADLINE_S,
    WRITER_WINDOW,
    WRITER_WINDOW_CONTENTS,
)
from mtl.net.curve import client_keys
from mtl.wire import control as w

Confirm = Literal["full", "none"]

_MARGIN_S = 10.0
"""Above every deadline of the IO thread: whoever waits this much longer waits for a thread that is dead."""

_TEST = "test"
"""The RFC's own profile, which has nothing else at any server."""

_IDLE_CHANNELS = 8
"""Control sessions kept for the next reader or writer."""


def connect(
    endpoint: str = DEFAULT_ENDPOINT,
    *,
    virtual_host: str | None = None,
    profile: str = "log",
    request_timeout: float = REQUEST_TIMEOUT_S,
    retry_deadline: float = RETRY_DEADLINE_S,
    user: str | None = None,
    password: str | None = None,
    password_file: str | os.PathLike[str] | None = None,
    password_env: str | None = None,
    sasl_mechanism: str | None = None,
    curve_server_key: str | os.PathLike[str] | None = None,
    curve_key_file: str | os.PathLike[str] | None = None,
    heartbeat: float | None = None,
    local_reads: bool = True,
    local_writes: bool = True,
    acting_as: str | None = None,
) -> Connection:
    """Connect to the broker at `endpoint`; use the result as a context manager, or close it.

    `request_timeout` (seconds) bounds one attempt, `retry_deadline` all of them. `heartbeat` is after how many seconds
    of silence readers and writers ping the broker (default: what it says; 0: never). Raises `Unreachable` when nobody
    answers until the deadline, `Refused` when the broker does not let us in or knows no such virtual host or profile.
    With `local_reads` packs of a broker on this machine are read from its files where this process may do so, with
    `local_writes` packs for it are put into memory that it shares with this process.

    `user` proves itself by a password: given itself, as the first line of `password_file`, or in the environment
    variable `password_env`. `sasl_mechanism` is the only one to use (default: the strongest that both know; PLAIN on an
    unencrypted tcp connection only when it is named here). `curve_server_key`, the broker's public key (40 characters
    of Z85) or its file, turns encryption on; `curve_key_file` is a private file of one's own, by which a broker may
    know who we are without a password (default: a key made up for this connection). `acting_as` is another user, whose
    rights the connection has in place of those of `user` (`mtl grant USER --act-as`). Raises `OptionError` for what
    does not fit together or cannot be read.
    """
    settings = Settings(
        endpoint,
        virtual_host,
        profile,
        request_timeout,
        retry_deadline,
        user,
        password,
        _text(password_file),
        password_env,
        sasl_mechanism,
        client_keys(_text(curve_server_key), _text(curve_key_file)),
        heartbeat=heartbeat,
        local_reads=local_reads,
        local_writes=local_writes,
        acting_as=acting_as,
    )
    connection = Connection(settings)
    try:
        connection.ready()
    except MtlError:
        connection.close()
        raise
    return connection


def _text(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)


class Connection(Administration):
    """One client of one broker, safe to use from several threads and, after a fork, from the child.

    A child gets a session of its own with its first request; readers and writers stay the parent's.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._open = True
        self._sees_files = settings.local_reads
        """Whether packs may come by their place, as far as is known: one look at the broker's files is enough."""
        self._ours: bool | None = None
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._loop: Loop = loop()
        self._main: Channel | None = None
        self._idle: list[Channel] = []
        self._lent: set[Channel] = set()
        self._users: set[Reader | Writer | Consumer] = set()

    @property
    def endpoint(self) -> str:
        """Where the broker is."""
        return self.settings.endpoint

    # --- requests -------------------------------------------------------------------------------------------

    def ready(self) -> w.Ready:
        """What the broker said when the session was opened."""
        reply = self._call(self._channel(), None)[0]
        if isinstance(reply, Refused):
            raise reply
        assert isinstance(reply, w.Ready)
        return reply

    def own_name(self, name: str) -> str:
        """A name of a group, queue, writer or application that this client may use without a grant: behind the user's
        own name and a dot, where the broker says that it is a user's client (PROTOCOL.md 2.2).
        """
        user = self.ready().user
        return name if user is None else f"{user}.{name}"

    def request(self, request: w.Request, *, patience: float = 0.0) -> w.Reply:
        """Send any request and return its reply; it is sent again until it is answered or the deadline passes.

        `patience` is how long, in seconds, the broker may take on purpose (a Describe with `wait`).
        """
        if patience:
            _, waiter = self.ask(request, patience=patience)
            return waiter.wait(self.settings.retry_deadline + patience + _MARGIN_S)
        outcome, _ = self._call(self._channel(), request)
        if isinstance(outcome, Refused):
            raise outcome
        return outcome

    def ask(self, request: w.Request, *, patience: float) -> tuple[Call, Waiter]:
        """Send a request that the broker may take its time over, as `request` does, and leave waiting to the caller."""
        channel, waiter = self._lend(), Waiter()  # not on the session that everything else waits for

        def done(outcome: Outcome) -> None:
            self._give_back(channel, None)
            waiter.done(outcome)

        call = Call(request, done, patience=patience)
        self._loop.post(lambda: channel.submit(call))
        return call, waiter

    def _attempted(self, request: w.Request) -> tuple[w.Reply | Refused, int]:
        return self._call(self._channel(), request)

    def _call(self, channel: Channel, request: w.Request | None) -> tuple[w.Reply | Refused, int]:
        waiter = Waiter()
        call = Call(request, waiter.done)
        self._loop.post(lambda: channel.submit(call))
        try:
            outcome: w.Reply | Refused = waiter.wait(self.settings.retry_deadline + _MARGIN_S)
        except Refused as refused:
            outcome = refused
        return outcome, call.attempts

    def _channel(self) -> Channel:
        """The session for requests that concern no lease and are answered at once."""
        self._here()
        with self._lock:
            if self._main is None:
                self._main = Channel(self._loop, self.settings)
            return self._main

    def _here(self) -> None:
        if self._pid != os.getpid():
            self._begin()
        if not self._open:
            raise Closed("the connection is closed")
        if not self._loop.running:
            self._begin()

    # --- readers and writers --------------------------------------------------------------------------------

    def reader(
        self,
        resource: str,
        *,
        start: Start | None = None,
        until: int | None = None,
        group: str | None = None,
        holder: str | None = None,
        epoch: int | None = None,
        packed: bool | None = None,
        window_contents: int | None = None,
        window_bytes: int | None = None,
        incarnation: str | None = None,
        log_epoch: str | None = None,
        until_epoch: str | None = None,
        skip_lost: bool = False,
        confirm: Confirm | None = None,
    ) -> Reader:
        """Open a reader of `resource`, from `start` ("earliest", "latest", "group" or a sequence) up to `until`.

        `start` defaults to "group" with a group and to "earliest" without. With `group` alone the reader holds the
        group: its `confirm` moves the group's durable cursor, and an older holder is fenced, unless it has the same
        `holder` id; with `epoch` it is a member of the holding of that epoch. `packed` (the default) lets contents
        travel many at a time. The window bounds what is sent and not consumed, in contents and stored octets. With
        `skip_lost` contents that retention took are skipped and listed in `Reader.lost`, instead of a `DataLoss`.

        `log_epoch` is the epoch of the last content before the sequence `start`, as `Reader.log_epoch` told it: a
        broker whose data is another copy then refuses with `DataLoss`, instead of other contents. `until_epoch` is the
        same of `until`, for a range that was there as a whole.

        Raises `Refused` (404 no such resource, 409 another incarnation), `DataLoss`, `Fenced`, `NotGranted`.
        """
        extended = self._extended
        if extended and self.settings.profile.lower() == "queue":
            raise OptionError('the profile "queue" has no positioned readers; use consumer')
        packed = extended if packed is None else packed
        if not extended and (packed or start is not None or group is not None or until is not None):
            raise self._unknown_to_the_rfc("start, until, group or packed contents")
        if epoch is not None and group is None:
            raise OptionError("epoch names a holding of a group; give the group, too")
        if (log_epoch is not None and not isinstance(start, int)) or (
            until_epoch is not None and until is None
        ):
            raise OptionError(
                "log_epoch belongs to a sequence to start at, until_epoch to one to end before; give these"
            )
        holds = group is not None and epoch is None
        options = ReaderOptions(
            resource=resource,
            start=start if start is not None else "group" if group is not None else "earliest",
            until=until,
            group=group,
            holder=holder if holder is not None or not holds else uuid4().hex,
            epoch=epoch,
            packed=packed,
            window_contents=window_contents or (READER_WINDOW_CONTENTS if packed else PLAIN_WINDOW_CONTENTS),
            window_bytes=window_bytes or READER_WINDOW,
            incarnation=incarnation,
            log_epoch=log_epoch,
            until_epoch=until_epoch,
            skip_lost=skip_lost,
            local=packed and self._sees_files,
            confirm=confirm or self._usual_confirm,
        )
        channel = self._lend()
        feed = (Feed if extended else RfcFeed)(self._loop, channel, options)
        reader = Reader(self._loop, self.settings, feed, lambda: self._give_back(channel, reader))
        self._granted(feed, channel)
        self._users.add(reader)
        reader.begin()
        self._sees_files = self._sees_files and reader.sees_files
        return reader

    def consumer(
        self,
        resources: str | Iterable[str] = (),
        *,
        queue: str | None = None,
        start: Literal["earliest", "latest"] | int | None = None,
        window_contents: int = CONSUMER_WINDOW_CONTENTS,
        window_bytes: int = READER_WINDOW,
        confirm: Confirm = "full",
    ) -> Consumer:
        """Open a consumer: every content of these resources goes to one consumer of their queue, which answers it.

        A resource has any number of queues, each with a name; without one it is the `default` one. A queue is made by
        its first consumer and begins at `start` (default "earliest"). Without `resources` the consumer says later which
        it wants (`Consumer.summon`). The window bounds what it has in hand. With confirm "none" contents are settled
        when they are sent: at most once. Whatever the connection's profile is, this one is `queue`.

        Raises `Refused` (404 no such resource), `DataLoss`, `NotGranted`.
        """
        names, ours = tuple(listed(resources)), self._is_ours
        if not ours and (queue is not None or start is not None):
            raise self._unknown_to_the_rfc("names of queues or a start")
        options = ConsumerOptions(names, queue, start, window_contents, window_bytes, confirm, ours)
        channel = self._lend("queue" if ours else None)
        deliveries = Deliveries(self._loop, channel, options)
        consumer = Consumer(self._loop, self.settings, deliveries, lambda: self._give_back(channel, consumer))
        self._granted(deliveries, channel)
        self._users.add(consumer)
        return consumer

    def writer(
        self,
        resources: str | Iterable[str],
        *,
        name: str | None = None,
        packed: bool = False,
        stage: w.StageSpec | None = None,
        window_contents: int | None = None,
        window_bytes: int | None = None,
        incarnations: dict[str, str] | None = None,
        confirm: Confirm | None = None,
    ) -> Writer:
        """Open a writer to one resource, or to several of which each `send` names one.

        The broker remembers publishing numbers under `name`, so that nothing is doubled by sending again, even after
        its restart; the library makes one up, an `own_name`. Numbers go on where the last writer of the name ended
        (`Writer.last`), and an older one that still lives is fenced. With `stage` contents stay invisible until
        `stage_commit` of what `Writer.seal` answers. A `packed` writer takes `send_pack`, and packs what `send` gives
        it.

        Raises `Refused` (404 no such resource, 409 another incarnation), `NotGranted`.
        """
        extended = self._extended
        if not extended and (packed or stage is not None or name is not None):
            raise self._unknown_to_the_rfc("names, stages or packed contents")
        if stage is not None and name is not None:
            raise OptionError("a staged writer's numbers belong to its stage; it takes no name")
        names = tuple(listed(resources))
        confirm = confirm or self._usual_confirm
        if name is None and stage is None and extended and confirm == "full":
            name = self.own_name(uuid4().hex)
        options = WriterOptions(
            resources=names,
            name=name,
            packed=packed,
            stage=stage,
            window_contents=window_contents or WRITER_WINDOW_CONTENTS,
            window_bytes=window_bytes or WRITER_WINDOW,
            incarnations=incarnations,
            extended=extended,
            local=packed and confirm == "full" and self.settings.local_writes,
            confirm=confirm,
            holder=uuid4().hex if name is not None else None,
        )
        channel = self._lend()
        pump = Pump(self._loop, channel, options)
        writer = Writer(
            self._loop, self.settings, pump, self.request, lambda: self._give_back(channel, writer)
        )
        self._granted(pump, channel)
        self._users.add(writer)
        return writer

    @property
    def _is_ours(self) -> bool:
        """Whether the server knows PROTOCOL.md, and not the RFC only: then it gives its sessions tokens (section 2)."""
        if self._ours is None:
            self._ours = self.ready().session is not None
        return self._ours

    @property
    def _extended(self) -> bool:
        """Whether there are members beyond the RFC's, and the broker echoes what it grants."""
        return self.settings.profile.lower() != _TEST and self._is_ours

    @property
    def _usual_confirm(self) -> Confirm:
        """`test` has no confirmation; where there is one it is the only way to know that nothing was lost."""
        return "none" if self.settings.profile.lower() == _TEST else "full"

    def _unknown_to_the_rfc(self, what: str) -> OptionError:
        profile = f'profile "{self.settings.profile}"'
        if self.settings.profile.lower() == _TEST:
            return OptionError(f"{profile} has no {what}")
        server = f"the server at {self.endpoint} knows RFC 11 only (it gives no session token)"
        return OptionError(f"{server}: its {profile} has no {what}")

    def _granted(self, user: Incoming | Pump | Deliveries, channel: Channel) -> None:
        """Ask for the first lease, and wait for it."""
        self._loop.post(user.flow.start)
        if not user.granted_event.wait(self.settings.retry_deadline + _MARGIN_S):
            self._loop.post(user.flow.drop)
            self._loop.post(channel.close)
            self._lent.discard(channel)
            raise Unreachable(self.endpoint, self.settings.retry_deadline, "asking for a lease")
        if user.lease is None and user.error is not None:
            self._give_back(channel, None)
            raise user.error

    def _lend(self, profile: str | None = None) -> Channel:
        """A control session for one reader or writer: RFC 11 has one of each per connection."""
        self._here()
        profile = profile or self.settings.profile
        with self._lock:
            idle = next((x for x in self._idle if x.settings.profile == profile), None)
            if idle is not None:
                self._idle.remove(idle)
            channel = idle or Channel(self._loop, replace(self.settings, profile=profile))
            self._lent.add(channel)
            return channel

    def _give_back(self, channel: Channel, user: Reader | Writer | Consumer | None) -> None:
        if self._pid != os.getpid():
            return
        with self._lock:
            self._lent.discard(channel)
            if user is not None:
                self._users.discard(user)
            if self._open and len(self._idle) < _IDLE_CHANNELS:
                self._idle.append(channel)
                return
        self._post(channel.close)

    # --- closing --------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the readers and, after flushing them, the writers; then the sessions. Harmless when repeated.

        An error of a writer (what could not be confirmed) is raised when everything is closed.
        """
        if not self._open or self._pid != os.getpid():
            self._open = False
            return
        failed: MtlError | None = None
        for user in list(self._users):
            try:
                user.close()
            except MtlError as error:
                failed = failed or error
        self._open = False
        with self._lock:
            channels = [*self._idle, *([self._main] if self._main is not None else [])]
            self._idle.clear()
        for channel in channels:
            self._post(channel.close)
        if failed is not None:
            raise failed

    def drop(self) -> None:
        """Give everything up at once, also what other threads wait for: leases expire by themselves. Then close."""
        with self._lock:
            channels = list(self._lent)
        for channel in channels:
            self._post(channel.close)
        for user in list(self._users):
            if isinstance(user, Writer):
                user.abandon()
        self.close()

    def _post(self, call: Callable[[], None]) -> None:
        if self._loop.running:
            self._loop.post(call)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close; after an error of the block, writers are abandoned instead of flushed."""
        if kind is not None:
            for user in list(self._users):
                if isinstance(user, Writer):
                    user.abandon()
        self.close()
