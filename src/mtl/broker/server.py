"""The loop: sockets, threads and the clock around the core. `serve` is `mtl broker`.

One thread polls the sockets (`watch`), feeds the core and sends; a small pool writes and syncs logs (one log at a time
per thread, several logs at once), or an idle loop does it itself (`commit`), and a thread sums up what waits for them.
One more keeps the records and removes files and one makes new logs, so that none of these is ever ahead of a group
commit. Threads hand results over in a deque and wake the loop through a file descriptor in its poller.
"""

from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol, TypeVar

from mtl import limits
from mtl.broker import actions as a
from mtl.broker.authentication import AuthenticationSettings
from mtl.broker.commit import Commits
from mtl.broker.config import BrokerConfig
from mtl.broker.core import Broker, Settings
from mtl.broker.granting import Ports
from mtl.broker.granting_readers import LocalReads
from mtl.broker.granting_writers import LocalWrites
from mtl.broker.records import SecretRecord, UserRecord
from mtl.broker.rest import Rest, give_back
from mtl.broker.sending import Sender
from mtl.broker.storage import DiskAction, Storage
from mtl.broker.store import SqliteStore
from mtl.broker.watch import Watch
from mtl.errors import OptionError, StorageError
from mtl.log import FrugalDisk, Lock, RealDisk
from mtl.net.broker_sockets import BrokerCurve, BrokerSockets, is_command
from mtl.net.curve import read_pair
from mtl.net.machine import machine_mark
from mtl.net.ports import Port
from mtl.net.router import seed_identities
from mtl.net.shared import Lent
from mtl.net.wakeup import Wakeup
from mtl.protocol.sasl.scram import proves
from mtl.wire.control import LOCAL_KEY, LocalFiles
from mtl.wire.packs import decode_pack

log = logging.getLogger("mtl.broker")

Work = TypeVar("Work", a.CheckPassword, DiskAction)


def clock() -> a.Now:
    """The time, for the core."""
    return a.Now(time.monotonic(), time.time_ns() // 1000)


def boot_id() -> str:
    """Which boot of the machine this is; the page cache of another one is gone."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return str(int(time.time() - time.monotonic()))


class Server:
    """A running broker. `run` returns when `stop` was called and everything confirmed is on disk."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._stopping = False
        self._done: deque[tuple[int, object]] = deque()
        self._boot = boot_id()
        with ExitStack() as opened:  # closed again should anything of this fail
            self._wakeup = Wakeup()
            opened.callback(self._wakeup.close)
            self._lock = _lock(config.data)
            opened.callback(self._lock.release)
            store = SqliteStore(f"{config.data}/broker.db")
            opened.callback(store.close)
            self._storage = Storage(FrugalDisk(RealDisk()), config.data, store, config.segment_bytes)
            self._store = store
            restored = self._storage.restore(self._boot, os.urandom(4).hex(), clock().wall_us)
            for key, log_or_error in restored.logs.items():
                if isinstance(log_or_error, StorageError):
                    log.error("%s is stopped: %s", key, log_or_error)
            seed_identities()
            self._sockets = BrokerSockets(
                config.endpoint,
                config.packed_port,
                config.plain_port,
                self._wakeup.fileno(),
                shared=config.shared_socket,
                curve=self._curve(),
            )
            opened.callback(self._sockets.close)
            self._broker = Broker(
                self._settings(secret(store, os.urandom)),
                restored,
                os.urandom,
                lambda body, count: void(decode_pack(body, count)),
                clock(),
            )
            if config.authentication.anonymous is True and len(self._broker.accounts):
                log.warning(
                    "there are users, but whoever shows no credentials may do everything: see [authentication]"
                )
            self._sender = Sender(self._sockets, self._broker, clock)
            self._watch = Watch(self._sockets, time.monotonic, os.sched_yield)
            self._alone = False
            """Whether the last turn wrote a group itself: its writer has a Confirm by now, and nobody else waits."""
            self._writing = _threads(opened, "mtl-commit", limits.COMMIT_THREADS)
            self._commits = Commits(
                self._storage.perform,
                lambda action, perform: self._start(self._writing, action, perform),
                lambda: not self._done and self._sockets.quiet(),
                time.monotonic,
            )
            self._preparing = _threads(opened, "mtl-prepare")
            self._records = _threads(opened, "mtl-records")
            self._creations = _threads(opened, "mtl-creations")
            self._passwords = _threads(opened, "mtl-passwords")
            self._users: deque[list[UserRecord]] = deque()
            self._users_due = 0.0
            self._rest = Rest(time.monotonic, time.process_time)
            while not self._broker.ready:
                self._turn(serving=False)
            opened.pop_all()

    def _curve(self) -> BrokerCurve | None:
        """Our key, and who may connect: anybody, or the users' own keys."""
        config = self._config.curve
        if not config.key_file:
            return None
        _, secret = read_pair(Path(config.key_file))
        everybody = config.clients == "any"
        return BrokerCurve(secret, lambda key: everybody or self._broker.accounts.owner(key) is not None)

    def _settings(self, secret: bytes) -> Settings:
        config, packed, plain = self._config, self._sockets.packed, self._sockets.plain
        return Settings(
            boot=os.urandom(8).hex(),
            ports=Ports(
                packed.port,
                plain.port,
                _endpoint_without_port(packed.endpoint),
                _endpoint_without_port(plain.endpoint),
            ),
            packs_on=Port.CONTROL if config.shared_socket else Port.PACKED,
            virtual_hosts=config.virtual_hosts,
            auto_create=config.auto_create,
            authentication=AuthenticationSettings(
                anonymous=config.authentication.anonymous,
                mechanisms=config.authentication.mechanisms,
                attempts=config.authentication.attempts,
                plain_without_encryption=config.authentication.plain_without_encryption,
                sessions_by_identity=config.authentication.sessions_by_identity,
                protected=config.protected,
                secret=secret,
            ),
            heartbeat_s=config.heartbeat,
            lease_unbound_s=config.lease_unbound,
            segment_bytes=config.segment_bytes,
            local_reads=_local_reads(config) if config.local_reads else None,
            local_writes=_local_writes() if config.local_writes else None,
        )

    @property
    def endpoint(self) -> str:
        """Where clients reach it."""
        return self._sockets.control.endpoint

    def stop(self) -> None:
        """Stop cleanly, soon; safe from a signal handler and from any thread."""
        self._stopping = True
        self._wakeup.wake()

    def run(self) -> None:
        """Serve until stopped."""
        sys.setswitchinterval(limits.SWITCH_INTERVAL_S)
        gc.freeze()
        while not self._stopping:
            self._turn(serving=True)
        self._finish()

    def _turn(self, *, serving: bool) -> None:
        """One round: wait, take in, decide, carry out."""
        readable = self._watch.wait(self._patience_ms(), awaited=self._alone)
        if self._sockets.woken:
            self._wakeup.clear()
        if serving:
            self._take_in(readable)
        self._complete()
        while self._users:
            self._broker.users(self._users.popleft(), clock())
        self._look_for_users()
        if self._rest.begins():
            self._preparing.submit(give_back)
        self._broker.tick(clock())
        self._broker.advance()
        self._alone = False
        while self._carry_out(self._broker.take()):
            self._alone = True
            self._complete()
            self._broker.advance()

    def _complete(self) -> None:
        """Tell the core of what was carried out."""
        while self._done:
            number, result = self._done.popleft()
            if isinstance(result, BaseException) and not isinstance(result, StorageError):
                raise result
            self._commits.finished(number)
            self._broker.completed(number, result, clock())

    def _patience_ms(self) -> int:
        if self._done or self._broker.busy:
            return 0
        due = self._broker.next_due
        if due is None:
            return 1000
        return max(0, min(1000, int((due - time.monotonic()) * 1000) + 1))

    def _take_in(self, readable: set[Port]) -> None:
        for port in (Port.CONTROL, Port.PACKED, Port.PLAIN):
            if port in readable:
                self._drain(port)

    def _drain(self, port: Port) -> None:
        """Take in what came on one socket, as much as it may before the others have their turn."""
        now = clock()
        until = now.mono + limits.DRAIN_S
        taken = self._requests(now) if port is Port.CONTROL else self._commands(port, now)
        for _ in taken:
            if time.monotonic() > until:
                return

    def _requests(self, now: a.Now) -> Iterator[None]:
        for frames, origin in self._sockets.requests():
            if self._sockets.shared and is_command(frames):
                identity, header, body = frames
                self._broker.data((Port.CONTROL, identity), header, body, now, origin.key)
                self._sender.heard((Port.CONTROL, identity))
            else:
                self._broker.control(frames, now, origin)
            yield

    def _commands(self, port: Port, now: a.Now) -> Iterator[None]:
        broker, sender = self._broker, self._sender
        for bursts in self._sockets.commands(port, alone=self._alone):
            for identity, burst in bursts.items():
                broker.burst((port, identity), burst.headers, burst.bodies, now, burst.key)
                sender.heard((port, identity))
            yield

    def _look_for_users(self) -> None:
        """Now and then: whether another process (`mtl user`, `mtl grant`) has changed who may do what."""
        if time.monotonic() < self._users_due or self._stopping:
            return
        self._users_due = time.monotonic() + limits.ACCOUNTS_CHECK_S

        def look() -> None:
            try:
                if self._store.changed():
                    self._users.append(self._store.of(UserRecord))
                    self._wakeup.wake()
            except StorageError as e:
                log.error("the users could not be read again: %s", e)

        self._records.submit(look)

    def _carry_out(self, actions: Sequence[a.Action]) -> bool:
        """Do what the core decided, or have it done; whether the loop did some of it that the core waits for."""
        commits: list[a.LogAction] = []
        for action in actions:
            if isinstance(action, a.Reply | a.Send | a.Deliver | a.Relay):
                self._sender.send(action)
            elif isinstance(action, a.Save):
                self._start(self._records, action, self._storage.perform)
            elif isinstance(action, a.CreateLog):
                self._start(self._creations, action, self._storage.perform)
            elif isinstance(action, a.Prepare):
                self._preparing.submit(action.chunk.checksum)
            elif isinstance(action, a.DropLogs):
                self._records.submit(self._storage.drop, action)
            elif isinstance(action, a.CheckPassword):
                self._start(self._passwords, action, lambda x: proves(x.password, x.verifier))
            else:
                commits.append(action)
        self._sender.flush()
        here = self._commits.carry_out(commits)
        self._done.extend(here)
        return bool(here)

    def _start(self, pool: ThreadPoolExecutor, action: Work, perform: Callable[[Work], object]) -> None:
        def work() -> None:
            result: object
            try:
                result = perform(action)
            except BaseException as e:  # noqa: BLE001 a bug: the loop must die of it, loudly, and not wait for ever
                result = e
            self._done.append((action.id, result))
            self._wakeup.wake()

        pool.submit(work)

    def _finish(self) -> None:
        """Take nothing in any more, let the disk finish, close."""
        self._broker.close(clock())
        deadline = time.monotonic() + limits.STOP_S
        while not self._broker.idle and time.monotonic() < deadline:
            self._turn(serving=False)
        self._passwords.shutdown(cancel_futures=True)
        self._writing.shutdown()
        self._preparing.shutdown(cancel_futures=True)
        self._records.shutdown()
        self._creations.shutdown()
        self._sockets.close()
        log.info("stopped: %s", ", ".join(f"{n} {k}" for k, n in self._broker.statistics().items() if n))
        try:
            self._storage.close(self._boot)
        finally:
            self._wakeup.close()
            self._lock.release()


def _threads(opened: ExitStack, name: str, most: int = 1) -> ThreadPoolExecutor:
    threads = ThreadPoolExecutor(most, name)
    opened.callback(threads.shutdown)
    return threads


def secret(store: SqliteStore, random: Callable[[int], bytes]) -> bytes:
    """The data directory's own random octets, made once."""
    kept: list[SecretRecord] = []

    def change(found: SecretRecord | None) -> SecretRecord:
        kept.append(found or SecretRecord(random(32)))
        return kept[0]

    store.edit(SecretRecord, SecretRecord.key, change)
    return kept[0].octets


def void(_: object) -> None:
    """Nothing but the exception matters."""


def _lock(data: str) -> Lock:
    """The data directory, made if need be, for this process alone. Raises `OptionError`, `DirectoryInUse`."""
    try:
        Path(data).mkdir(parents=True, exist_ok=True)
        return RealDisk().lock(data)
    except OSError as e:
        raise OptionError(f"cannot use {data} as data directory: {e.strerror}") from e


def _local_reads(config: BrokerConfig) -> LocalReads | None:
    """What readers on this machine are told; None where machines cannot be told apart. Makes the key they look for."""
    machine = machine_mark()
    if machine is None:
        return None
    directory, key = Path(config.data).absolute(), os.urandom(16).hex()
    path = directory / LOCAL_KEY
    try:
        path.touch(0o600)
        path.write_text(key)
    except OSError as e:
        raise OptionError(f"cannot write {path}: {e.strerror}") from e
    return LocalReads(machine, LocalFiles(directory=str(directory), key=key))


def _local_writes() -> LocalWrites | None:
    """What lends memory to writers on this machine; None where machines cannot be told apart."""
    machine = machine_mark()
    return LocalWrites(machine, Lent) if machine is not None else None


def _endpoint_without_port(endpoint: str) -> str | None:
    return None if endpoint.startswith("tcp://") else endpoint


def raise_file_limit() -> None:
    """As many open files as the system lets this process have: logs take some hundred, each connection one."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    except (ValueError, OSError) as error:  # macOS says that there is no limit, and takes none for an answer
        log.warning("this process may have %d files open: %s", now, error)


class Beside(Protocol):
    """Clients that live and end with the broker: the doors of its configuration."""

    def start(self, endpoint: str) -> None:
        """The broker listens at `endpoint`."""

    def stop(self) -> None:
        """The broker is about to stop; it waits for this, and still confirms meanwhile. Harmless when repeated."""


def serve(
    config: BrokerConfig,
    say: Callable[[str], None] = print,
    beside: Beside | None = None,
    *,
    until_eof: bool = False,
) -> int:
    """Run a broker until SIGTERM or SIGINT, with `until_eof` also until standard input ends; says one line when it is
    ready. Returns the exit code 0.

    Raises `OptionError` for a configuration that cannot be, `StorageError` for a data directory that is in use, of a
    newer version, full or damaged, and `BindFailed`.
    """
    config.check_exposure()
    config.check_logins()
    raise_file_limit()
    server = Server(config)

    def stop() -> None:
        if beside is not None:
            beside.stop()
        server.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        # In a thread, for the loop has to go on meanwhile.
        signal.signal(number, lambda *_: threading.Thread(target=stop, daemon=True).start())
    if until_eof:
        threading.Thread(target=_after_input, args=(stop,), daemon=True).start()
    say(f"mtl broker ready at {server.endpoint} (data {config.data}, pid {os.getpid()})")
    try:
        if beside is not None:
            beside.start(server.endpoint)
        server.run()
    finally:
        if beside is not None:
            beside.stop()
    return 0


def _after_input(then: Callable[[], None]) -> None:
    """Standard input may say what it likes; only its end is of interest."""
    while os.read(sys.stdin.fileno(), 4096):
        pass
    then()
