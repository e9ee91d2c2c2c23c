"""The loop: sockets, threads and the clock around the core. `serving` runs it as `mtl broker`.

One thread polls the sockets (`watch`), feeds the core and sends. Other threads have the storage engine perform the
core's actions (`workers`); an idle loop performs small groups itself. Threads return results in a deque and
wake the loop through a file descriptor in its poller.
"""

from __future__ import annotations

import gc
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from mtl.broker import actions
from mtl.broker import limits as broker_limits
from mtl.broker.access.audit import AuditEvent
from mtl.broker.access.authentication import AuthenticationSettings
from mtl.broker.assembly import CoreSettings, assemble
from mtl.broker.commands.granting import Ports
from mtl.broker.commands.granting_readers import LocalReads
from mtl.broker.core import Broker
from mtl.broker.quotas.quotas import Quota, total_of
from mtl.broker.runtime.config import BrokerConfig
from mtl.broker.runtime.engine_monitor import EngineMonitor
from mtl.broker.runtime.idle_memory import FallDetector, IdleDetector, return_memory
from mtl.broker.runtime.sending import LoopSender, carry_out
from mtl.broker.runtime.stopping import StopGuard, exit_at_once, not_synced
from mtl.broker.runtime.watch import LoopWatch
from mtl.broker.runtime.workers import ThreadWorkers
from mtl.errors import OptionError, StorageError, StorageFailed
from mtl.log.reserve import files_at_once
from mtl.net.broker_sockets import BrokerCurve, BrokerSockets, Unsent, is_command
from mtl.net.curve import read_pair
from mtl.net.ipc import admit
from mtl.net.machine import machine_mark
from mtl.net.open_connections import connections_in_all
from mtl.net.outgoing import Outgoing
from mtl.net.ports import Port
from mtl.net.private import make_data_directory
from mtl.net.router import seed_identities
from mtl.net.wakeup import Wakeup
from mtl.storage.api import Engine, LogKey, Restored, Save
from mtl.storage.directory import DirectoryEngine
from mtl.storage.memory import Memory, MemoryEngine
from mtl.storage.records import SecretRecord
from mtl.wire.control import LOCAL_KEY, LocalFiles
from mtl.wire.packs import decode_pack

log = logging.getLogger("mtl.broker")

_SINCE_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""A clock that also counts while the machine sleeps: on Linux CLOCK_BOOTTIME, on macOS the monotonic one."""


class Server:
    """A running broker. `run` returns after `stop`, when everything confirmed is on disk."""

    def __init__(self, config: BrokerConfig, abandon: Callable[[str], None] = exit_at_once) -> None:
        self._config = config
        self._stopping = False
        self._alive = time.monotonic()
        self._closing: LogKey | None = None
        """The log that is being closed at the end; "" for the records."""
        self._abandon = abandon
        self._guard = StopGuard(lambda: self._alive, self._with_the_disk, abandon)
        self._results: deque[tuple[int, object]] = deque()
        with ExitStack() as opened:  # closed again after a failure of these steps
            self._wakeup = Wakeup()
            opened.callback(self._wakeup.close)
            self._engine = engine = open_engine(config)
            opened.callback(engine.close, lambda _: None)
            self._workers = ThreadWorkers(
                engine,
                self._answer,
                lambda: not self._results and self._sockets.quiet(),
                time.monotonic,
            )
            opened.callback(self._workers.shutdown)
            restored = engine.restore()
            seed_identities()
            self._sockets = self._bound()
            opened.callback(self._sockets.close)
            self._broker = self._core(restored)
            self._sender = LoopSender(self._sockets, self._broker, clock, self._broker.parts.backlog)
            self._watch = LoopWatch(self._sockets, time.monotonic, os.sched_yield)
            self._alone = False
            """Whether the last turn wrote a group in the loop: its writer has a Confirm, and no other client waits."""
            self._monitor = EngineMonitor(engine.observe, self._workers.run_between_saves, self._wakeup.wake)
            self._opening = True
            self._idle_detector = IdleDetector(time.monotonic, time.process_time)
            self._fall_detector = FallDetector(time.monotonic, self._sockets.most_unsent)
            while not self._broker.ready:
                self._run_turn(serving=False)
            opened.pop_all()

    def _bound(self) -> BrokerSockets:
        config = self._config
        sockets = BrokerSockets(
            config.endpoint,
            config.packed_port,
            config.plain_port,
            self._wakeup.fileno(),
            shared=config.shared_socket,
            curve=self._curve(),
            pace=config.quotas.pace(time.monotonic),
            most_open=config.quotas.connections_open,
            most_in_all=connections_in_all(files_at_once()),
            refused=self._connection_refused,
            unsent=Unsent(self._outgoing(Quota.UNSENT_BYTES), self._outgoing(Quota.UNSENT_ANSWER_BYTES)),
        )
        for endpoint in sockets.endpoints:
            admit(endpoint, config.socket_mode)
        return sockets

    def _outgoing(self, quota: Quota) -> Outgoing:
        total = total_of(quota)
        assert total is not None
        return Outgoing(total, lambda owner: self._broker.parts.quotas.share(owner, quota))

    def _core(self, restored: Restored) -> Broker:
        broker = assemble(
            self._settings(secret(self._engine, restored, os.urandom)),
            restored,
            os.urandom,
            decode_pack,
            clock(),
            self._sockets.has_room,
        )
        if self._config.authentication.anonymous is True and len(broker.accounts):
            log.warning(
                "there are users, but clients without credentials have all rights: see anonymous in [authentication]"
            )
        return broker

    def _curve(self) -> BrokerCurve | None:
        """The broker's key, and which clients may connect: all, or those with a user's key."""
        config = self._config.curve
        if not config.key_file:
            return None
        _, secret = read_pair(Path(config.key_file))
        everybody = config.clients == "any"
        return BrokerCurve(secret, lambda key: everybody or self._broker.accounts.owner(key) is not None)

    def _connection_refused(self, address: str, key: str, reason: str) -> None:
        self._broker.audit.write(AuditEvent.CONNECTION_REFUSED, address, key=key or None, reason=reason)

    def _settings(self, secret: bytes) -> CoreSettings:
        config, packed, plain = self._config, self._sockets.packed, self._sockets.plain
        return CoreSettings(
            boot=os.urandom(8).hex(),
            machine=machine_mark() or "",
            ports=Ports(
                packed.port,
                plain.port,
                _endpoint_without_port(packed.endpoint),
                _endpoint_without_port(plain.endpoint),
                shared=config.shared_socket,
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
            low_watermark=config.low_watermark,
            quotas=config.quotas.settings,
            local_reads=_local_reads(self._engine.directory) if config.local_reads else None,
        )

    @property
    def endpoint(self) -> str:
        """The endpoint that clients connect to."""
        return self._sockets.control.endpoint

    def stop(self) -> None:
        """Stop cleanly, soon; safe from a signal handler and from any thread."""
        self._stopping = True
        self._guard.begin()
        self._wakeup.wake()

    def read_users(self) -> None:
        """Check for changes of users and grants at once; safe from any thread."""
        self._monitor.check_soon()
        self._wakeup.wake()

    def run(self) -> None:
        """Serve until stopped."""
        sys.setswitchinterval(broker_limits.SWITCH_INTERVAL_S)
        # The objects of the start stay until the end. A full collection would visit all of them, hundreds of thousands
        # with 10,000 resources, while no Confirm is sent.
        gc.freeze()
        while not self._stopping:
            self._run_turn(serving=True)
        self._finish()

    def _run_turn(self, *, serving: bool) -> None:
        """One round: wait, receive, decide, carry out."""
        self._alive = time.monotonic()
        self._freeze()
        readable = self._watch.wait(self._patience_ms(), awaited=self._alone)
        if self._sockets.woken:
            self._wakeup.clear()
        for connection in self._sockets.ended:
            self._broker.disconnected(connection, clock())
        if serving:
            self._receive(readable)
        elif self._stopping:
            self._sockets.discard()
        self._complete()
        self._monitor.deliver(self._broker, clock)
        if not self._stopping:
            self._monitor.start_check(time.monotonic())
        if self._idle_detector.became_idle() or self._fall_detector.fell():
            self._workers.run_unawaited(return_memory)
        self._broker.tick(clock())
        self._broker.advance()
        self._alone = False
        while self._carry_out(self._broker.pop_actions()):
            self._alone = True
            self._complete()
            self._broker.advance()

    def _freeze(self) -> None:
        """Once all logs are open, exempt the present objects from garbage collection: they stay."""
        if self._opening and self._broker.opening.is_over:
            self._opening = False
            gc.freeze()

    def _complete(self) -> None:
        """Pass the results of completed actions to the core."""
        while self._results:
            number, result = self._results.popleft()
            if isinstance(result, BaseException) and not isinstance(result, StorageError):
                raise result
            self._workers.finished(number)
            self._broker.completed(number, result, clock())

    def _patience_ms(self) -> int:
        """Milliseconds until the next turn is due. A turn comes at least once a second: it drives the monitor, the idle
        detector and the sign of life for `StopGuard`. Rounded up: a turn that comes too early only waits again.
        """
        if self._results or self._broker.busy:
            return 0
        due = self._broker.next_due
        if due is None:
            return 1000
        return max(0, min(1000, int((due - time.monotonic()) * 1000) + 1))

    def _receive(self, readable: set[Port]) -> None:
        for port in (Port.CONTROL, Port.PACKED, Port.PLAIN):
            if port in readable:
                self._drain(port)

    def _drain(self, port: Port) -> None:
        """Receive from one socket, for at most `DRAIN_S` before the others have their turn."""
        now = clock()
        until = now.mono + broker_limits.DRAIN_S
        received = self._requests(now) if port is Port.CONTROL else self._commands(port, now)
        for _ in received:
            if time.monotonic() > until:
                return

    def _requests(self, now: actions.Now) -> Iterator[None]:
        for frames, origin in self._sockets.requests():
            if self._sockets.shared and is_command(frames):
                identity, header, body = frames
                self._broker.data((Port.CONTROL, identity), header, body, now, origin.connection)
                self._sender.on_frame((Port.CONTROL, identity))
            else:
                self._broker.control(frames, now, origin)
            yield

    def _commands(self, port: Port, now: actions.Now) -> Iterator[None]:
        broker, sender = self._broker, self._sender
        for bursts in self._sockets.commands(port, alone=self._alone):
            for identity, burst in bursts.items():
                broker.burst((port, identity), burst.headers, burst.bodies, now, burst.connection)
                sender.on_frame((port, identity))
            yield

    def _carry_out(self, turn: Sequence[actions.Action]) -> bool:
        """Carry out actions, here or in a thread; whether the loop completed one that the core waits for."""
        results = carry_out(turn, self._sender, self._workers)
        self._results.extend(results)
        return bool(results)

    def _answer(self, number: int, result: object) -> None:
        """Pass a result to the loop; safe from any thread."""
        self._results.append((number, result))
        self._wakeup.wake()

    def _with_the_disk(self) -> list[str]:
        """The names of the logs that are with the disk, for a message."""
        keys = ["" if isinstance(x, Save) else x.log for x in self._workers.under_way]
        if self._closing is not None:
            keys.append(self._closing)
        return [self._named(key) for key in dict.fromkeys(keys)]

    def _named(self, key: LogKey) -> str:
        resource = self._broker.parts.resources.of_log(key)
        return f"resource {resource.name!r}" if resource is not None else key or "the records (broker.db)"

    def _finish(self) -> None:
        """Stop receiving, wait for the disk, close."""
        self._broker.close(clock())
        deadline = time.monotonic() + broker_limits.STOP_S
        while not self._broker.idle and time.monotonic() < deadline:
            self._run_turn(serving=False)
        if self._workers.under_way:  # their threads may never end
            self._abandon(not_synced(self._with_the_disk()))
            return
        saved = self._broker.idle
        self._sockets.close()  # before anything that takes time: they are not read any more
        self._workers.shutdown()
        log.info("stopped: %s", ", ".join(f"{n} {k}" for k, n in self._broker.statistics().items() if n))
        try:
            failed = self._engine.close(self._is_closing)
        finally:
            self._guard.end()
            self._wakeup.close()
        names = [f"{self._named(key)} ({why})" for key, why in failed.items()]
        names += [] if saved else [self._named("")]
        if names:
            raise StorageFailed(not_synced(names))

    def _is_closing(self, key: LogKey) -> None:
        self._closing = key
        self._alive = time.monotonic()


def clock() -> actions.Now:
    """The time, for the core."""
    return actions.Now(time.monotonic(), time.time_ns() // 1000, time.clock_gettime(_SINCE_BOOT))


def open_engine(config: BrokerConfig) -> Engine:
    """The engine, for this process alone. Raises `OptionError` for a directory that cannot be used, `DirectoryInUse`,
    `StorageError`.
    """
    if config.in_memory:
        return MemoryEngine(Memory(config.memory_bytes))
    make_data_directory(Path(config.data))
    return DirectoryEngine(config.data, config.segment_bytes)


def secret(engine: Engine, restored: Restored, random: Callable[[int], bytes]) -> bytes:
    """The random octets that are kept with the records, made once. Raises `StorageError`."""
    record = next((r for r in restored.records if isinstance(r, SecretRecord)), None)
    if record is not None:
        return record.octets
    for damage in restored.damages:
        if damage.kind == SecretRecord.kind:
            log.warning("%s: other random octets replace it; no other record depends on it", damage)
    made = SecretRecord(random(32))
    (failed,) = engine.perform([Save(0, (made,))])
    if isinstance(failed, StorageError):
        raise failed
    return made.octets


def _local_reads(directory: Path | None) -> LocalReads | None:
    """The members for readers on this machine; None where machines cannot be identified, or for an engine without a
    directory. Writes the key file.
    """
    machine = machine_mark()
    if machine is None or directory is None:
        return None
    key = os.urandom(16).hex()
    path = directory / LOCAL_KEY
    try:
        path.touch(0o600)
        path.write_text(key)
    except OSError as e:
        raise OptionError(f"cannot write {path}: {e.strerror}") from e
    return LocalReads(machine, LocalFiles(directory=str(directory), key=key))


def _endpoint_without_port(endpoint: str) -> str | None:
    return None if endpoint.startswith("tcp://") else endpoint
