"""A connection to a broker: sends requests, and opens readers, consumers and writers."""

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
from mtl.client.limits import (
    CONSUMER_WINDOW_CONTENTS,
    PLAIN_WINDOW_CONTENTS,
    READER_WINDOW,
    READER_WINDOW_CONTENTS,
    WRITER_WINDOW,
    WRITER_WINDOW_CONTENTS,
)
from mtl.client.pump import Pump, WriterOptions
from mtl.client.reader import Reader
from mtl.client.resources import Administration, listed
from mtl.client.rfc_feed import RfcFeed
from mtl.client.settings import Settings
from mtl.client.writer import Writer
from mtl.errors import Closed, MtlError, OptionError, Refused, Unreachable
from mtl.limits import DEFAULT_ENDPOINT, REQUEST_TIMEOUT_S, RETRY_DEADLINE_S
from mtl.net.curve import client_keys
from mtl.wire import control as w

Confirm = Literal["full", "none"]

_MARGIN_S = 10.0
"""Added to the deadlines of the IO thread: a wait that exceeds them by this much means that the thread is dead."""

_TEST = "test"
"""The RFC's own profile, without extensions at any server."""

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

    `request_timeout` (seconds) bounds one attempt, `retry_deadline` all attempts. `heartbeat` is the silence, in
    seconds, after which readers and writers ping the broker (default: the broker's setting; 0: never). With
    `local_reads` packs of a broker on this machine are read from its files if this process has the right; with
    `local_writes` packs for it are written to memory that it shares with this process.

    `user` authenticates by a password: `password`, the first line of `password_file`, or the environment variable
    `password_env`. `sasl_mechanism` is the only mechanism to use (default: the strongest that client and broker
    support; PLAIN on an unencrypted tcp connection only if it is named here). `curve_server_key`, the broker's public
    key (40 characters of Z85) or a file with it, turns encryption on. `curve_key_file` is a file with a private key, by
    which the broker may authenticate the client without a password (default: a new key for this connection).
    `acting_as` is another user, whose rights the connection has instead of those of `user` (`mtl grant USER --act-as`).

    Raises `Unreachable` if there is no answer until the deadline, `Refused` if the login fails or the broker has no
    such virtual host or profile, `OptionError` for options that contradict each other or files that cannot be read.
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
        _text(curve_server_key),
        _text(curve_key_file),
        heartbeat,
        local_reads,
        local_writes,
        acting_as,
    )
    return open_connection(settings)


def open_connection(settings: Settings) -> Connection:
    """A connection with these settings. Raises what `connect` does."""
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
    """One client of one broker. Thread-safe, and usable in the child after a fork.

    A child opens its own session with its first request; open readers and writers work only in the parent.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._open = True
        self._sees_files = settings.local_reads
        """Whether to ask for places of packs in the broker's files; False after one failed attempt to read these."""
        self._ours: bool | None = None
        self._curve = client_keys(settings.curve_server_key, settings.curve_key_file)
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
        """The broker's control endpoint."""
        return self.settings.endpoint

    # --- requests -------------------------------------------------------------------------------------------

    def ready(self) -> w.Ready:
        """The broker's 201 reply, from the opening of the session."""
        reply = self._call(self._channel(), None)[0]
        if isinstance(reply, Refused):
            raise reply
        assert isinstance(reply, w.Ready)
        return reply

    def own_name(self, name: str) -> str:
        """`name` as a group, queue, writer or application that needs no grant: with the user's name and a dot before
        it, if the broker says that the client has a user (PROTOCOL.md 2.2).
        """
        user = self.ready().user
        return name if user is None else f"{user}.{name}"

    def request(self, request: w.Request, *, patience: float = 0.0) -> w.Reply:
        """Send any request and return its reply. It is repeated until there is an answer or the deadline passes.

        `patience` is how long, in seconds, the broker may hold the request on purpose (a Describe with `wait`).
        """
        if patience:
            _, waiter = self.ask(request, patience=patience)
            return waiter.wait(self.settings.retry_deadline + patience + _MARGIN_S)
        outcome, _ = self._call(self._channel(), request)
        if isinstance(outcome, Refused):
            raise outcome
        return outcome

    def ask(self, request: w.Request, *, patience: float) -> tuple[Call, Waiter]:
        """Send a request that the broker may hold for `patience` seconds; the caller waits for the reply."""
        channel, waiter = self._lend(), Waiter()  # its own session, so that other requests do not wait

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
        """The session for requests without a lease that the broker answers at once."""
        self._here()
        with self._lock:
            if self._main is None:
                self._main = Channel(self._loop, self.settings, self._curve)
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
        `holder` id. With `epoch` the reader is a member of the holding of that epoch. `packed` (the default) transports
        many contents in one message. The window bounds contents that are sent and not consumed, by number and stored
        octets. With `skip_lost`, contents that retention removed do not raise `DataLoss`: they are skipped and listed
        in `Reader.lost`.

        `log_epoch` is the epoch of the last content before the sequence `start`, from `Reader.log_epoch`. If the
        broker's data is another copy, it then refuses with `DataLoss` instead of sending other contents. `until_epoch`
        is the epoch before `until`, for a range that existed as a whole.

        Raises `Refused` (404 no such resource, 409 another incarnation), `DataLoss`, `Fenced`, `NotGranted`.
        """
        extended = self._extended
        if extended and self.settings.profile.lower() == "queue":
            raise OptionError('the profile "queue" has no positioned readers; use consumer')
        packed = extended if packed is None else packed
        if not extended and (packed or start is not None or group is not None or until is not None):
            raise self._unknown_to_the_rfc("start, until, group or packed contents")
        if epoch is not None and group is None:
            raise OptionError("epoch belongs to a group's holding; give the group, too")
        if (log_epoch is not None and not isinstance(start, int)) or (
            until_epoch is not None and until is None
        ):
            raise OptionError("log_epoch needs a sequence as start, and until_epoch needs until")
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
        """Open a consumer: a queue gives every content of these resources to one of its consumers, which answers it.

        A resource has any number of queues, by name; the default is the queue `default`. The first consumer creates a
        queue, which begins at `start` (default "earliest"). Without `resources` the consumer names them later
        (`Consumer.summon`). The window bounds delivered, unanswered contents. With confirm "none" contents are settled
        when they are sent: at most once. The consumer uses profile `queue`, regardless of the connection's profile.

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
        """Open a writer to one resource, or to several; with several, each `send` names one.

        The broker remembers publishing numbers under `name`, so that contents sent again are not duplicated, even
        after a restart of the broker. The default is a new `own_name`. Numbers continue after those of the last writer
        of the name (`Writer.last`); an older writer that is still open is fenced. With `stage` contents stay invisible
        until `stage_commit` of the stage from `Writer.seal`. A `packed` writer has `send_pack`, and packs the contents
        of `send`.

        Raises `Refused` (404 no such resource, 409 another incarnation), `NotGranted`.
        """
        extended = self._extended
        if not extended and (packed or stage is not None or name is not None):
            raise self._unknown_to_the_rfc("names, stages or packed contents")
        if stage is not None and name is not None:
            raise OptionError("a writer with a stage cannot have a name: its numbers belong to the stage")
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
        """Whether the server implements PROTOCOL.md, not only the RFC: then sessions have tokens (section 2)."""
        if self._ours is None:
            self._ours = self.ready().session is not None
        return self._ours

    @property
    def _extended(self) -> bool:
        """Whether requests may have members beyond the RFC's, which the broker echoes if it grants them."""
        return self.settings.profile.lower() != _TEST and self._is_ours

    @property
    def _usual_confirm(self) -> Confirm:
        """The model "full" is the only way to detect losses. Profile `test` has no confirmation."""
        return "none" if self.settings.profile.lower() == _TEST else "full"

    def _unknown_to_the_rfc(self, what: str) -> OptionError:
        profile = f'profile "{self.settings.profile}"'
        if self.settings.profile.lower() == _TEST:
            return OptionError(f"{profile} has no {what}")
        server = f"the server at {self.endpoint} implements RFC 11 only (it gives no session token)"
        return OptionError(f"{server}: its {profile} has no {what}")

    def _granted(self, user: Incoming | Pump | Deliveries, channel: Channel) -> None:
        """Request the first lease, and wait until it is granted."""
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
        """A control session for one reader or writer: RFC 11 allows one of each per connection."""
        self._here()
        profile = profile or self.settings.profile
        with self._lock:
            idle = next((x for x in self._idle if x.settings.profile == profile), None)
            if idle is not None:
                self._idle.remove(idle)
            channel = idle or Channel(self._loop, replace(self.settings, profile=profile), self._curve)
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
        """Close the readers, flush and close the writers, then close the sessions. May be called again.

        An error of a writer (unconfirmed contents) is raised after everything is closed.
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
        """Close at once, and end the waits of other threads. Unconfirmed contents may be lost, and leases expire."""
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
