"""The broker's core with an environment in memory: no sockets, threads or clocks.

`Rig` is a disk and records that outlive the broker, and a broker that can be stopped, killed and started again on them.
`Client` is a control session and its data flows. After each input all actions are performed until none is left, unless
the rig holds disk actions back.

    rig = Rig()
    client = rig.client()
    client.create("a")
    writer = client.flow(client.writer("a"))
    writer.content(1, b"x")
    assert writer.sent() == [Confirm(1, True)]
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from typing import Any

import msgspec

from mtl.broker import actions
from mtl.broker.assembly import CoreSettings, assemble
from mtl.broker.commands.granting import Ports
from mtl.broker.runtime.sending import LoopSender, carry_out
from mtl.net.ports import Port
from mtl.net.router import SendOutcome
from mtl.protocol.sasl.scram import proves
from mtl.storage.api import DropLogs, Prepare, StorageAction
from mtl.storage.local import Storage
from mtl.storage.records import ResourceRecord
from mtl.wire import control
from mtl.wire.fields import Buffer
from mtl.wire.packs import decode_pack
from tests.support.core_client import PORTS, Client, Flow, Waiting, packed, unpacked
from tests.support.engines import FaultyEngine
from tests.support.faulty_disk import Crashed, FaultyDisk
from tests.support.faulty_store import FaultyStore

ROOT = "/data"
START_US = 1_700_000_000_000_000


class Sockets:
    """The sockets of the sender. `room` bounds the messages that a peer accepts before it reads; a peer in `gone` has
    disconnected; one in `without_room` has no room by octets, and `asked` are the questions for that.
    """

    def __init__(self) -> None:
        self.sent: dict[actions.Peer, list[tuple[bytes, bytes]]] = {}
        self.replies: list[tuple[bytes, ...]] = []
        self.room: dict[actions.Peer, int] = {}
        self.gone: set[actions.Peer] = set()
        self.without_room: set[actions.Peer] = set()
        self.asked: list[tuple[actions.Peer, str, int]] = []

    def reply(self, frames: Sequence[bytes], _owner: str) -> SendOutcome:
        self.replies.append(tuple(frames))
        return SendOutcome.OK

    def send(self, peer: actions.Peer, header: bytes, body: Buffer, _owner: str) -> SendOutcome:
        if peer in self.gone:
            return SendOutcome.GONE
        if self.room.get(peer, 1) <= 0:
            return SendOutcome.FULL
        if peer in self.room:
            self.room[peer] -= 1
        self.sent.setdefault(peer, []).append((bytes(header), bytes(body)))
        return SendOutcome.OK

    def send_contents(
        self, peer: actions.Peer, headers: Sequence[bytes], bodies: Sequence[Buffer], owner: str
    ) -> tuple[int, SendOutcome]:
        for number, frames in enumerate(zip(headers, bodies, strict=True)):
            sent = self.send(peer, *frames, owner)
            if sent is not SendOutcome.OK:
                return number, sent
        return len(headers), SendOutcome.OK

    def has_room(self, peer: actions.Peer, owner: str, octets: int) -> bool:
        """Whether there is room by octets."""
        self.asked.append((peer, owner, octets))
        return peer not in self.without_room


class Rig:
    """See the module. `hold` keeps disk actions of some kinds back until `let_go`; `settings` are the core's."""

    def __init__(
        self, disk: FaultyDisk | None = None, store: FaultyStore | None = None, **settings: Any
    ) -> None:
        self.disk = disk if disk is not None else FaultyDisk(random.Random(1))
        self.store = store if store is not None else FaultyStore()
        if not self.disk.exists(ROOT):
            self.disk.make_dir(ROOT)
            self.disk.fsync_dir("/")
        self.mono = 1_000.0
        self.wall_us = START_US
        self.machine = "boot"
        self.settings = settings
        self.random = random.Random(2)
        self.held: deque[StorageAction | actions.CheckPassword] = deque()
        self._hold: tuple[type, ...] = ()
        self._identities = 0
        self.start()

    # --- life -----------------------------------------------------------------------------------------------

    def start(self, *held: type) -> None:
        """Start a broker on the present data; actions of the kinds `held` are held back from the disk."""
        self.storage = Storage(self.disk, ROOT, self.store, self.settings.get("segment_bytes", 1 << 20))
        self.engine = FaultyEngine(self.storage)
        restored = self.engine.restore()
        self.sockets = Sockets()
        self.broker = assemble(
            CoreSettings(
                boot=self.random.randbytes(8).hex(),
                machine=self.machine,
                ports=Ports(PORTS[Port.PACKED], PORTS[Port.PLAIN]),
                **self.settings,
            ),
            restored,
            self.random.randbytes,
            decode_pack,
            self.now(),
            self.sockets.has_room,
        )
        self.sender = LoopSender(self.sockets, self.broker, self.now, self.broker.parts.backlog)
        self.held.clear()
        self.hold(*held)
        self.run()

    def stop(self) -> None:
        """A clean stop."""
        self.broker.close(self.now())
        self.run()
        assert self.broker.idle
        self.engine.close(lambda _: None)

    def restart(self) -> None:
        """Stop cleanly and start again."""
        self.stop()
        self.start()

    def copy(self) -> tuple[Any, dict[Any, bytes]]:
        """A copy of the data directory as it is."""
        return self.disk.copy(), dict(self.store.rows)

    def put_back(self, copy: tuple[Any, dict[Any, bytes]]) -> None:
        """Stop cleanly, put a copy of the data directory in its place, and start again on that."""
        self.stop()
        self.disk.put_back(copy[0])
        self.store.rows = dict(copy[1])
        self.start()

    def reincarnate(self, name: str) -> None:
        """Restart with records that give a resource another incarnation, as if it had been recreated."""
        self.stop()
        for record in self.store.load().records:
            if isinstance(record, ResourceRecord) and record.name == name:
                self.store.save((msgspec.structs.replace(record, incarnation="another"),), ())
        self.start()

    def kill(self) -> None:
        """SIGKILL, and start again: the system has all that was written."""
        self.crash(power=False)

    def crash(self, *, power: bool = True, keep: str = "none", landed: bool = False) -> None:
        """Kill the process, with `power` lose unsynced octets as well; start again. `landed`: whether a failed or
        unfinished save reached the disk.
        """
        self.disk.crash(power=power, keep=keep)
        self.disk.heal()
        self.store.crash(landed=landed)
        self.machine += "'" if power else ""
        self.start()

    # --- time and turns -------------------------------------------------------------------------------------

    def now(self) -> actions.Now:
        return actions.Now(self.mono, self.wall_us)

    def run(self) -> None:
        """Perform the actions of the core until there are none left."""
        for _ in range(100_000):
            self.broker.advance()
            turn = self.broker.pop_actions()
            if not turn and not self.broker.busy:
                return
            self.carry_out(turn)
        raise AssertionError("the core never comes to rest")

    def carry_out(self, turn: Sequence[actions.Action]) -> None:
        """Carry these out as one turn."""
        assert carry_out(turn, self.sender, self) == []

    def begin(self, action: StorageAction | actions.CheckPassword) -> None:
        """Perform the action at once, unless it is held back."""
        if isinstance(action, self._hold):
            self.held.append(action)
        else:
            self._perform(action)

    def end_turn(self) -> list[tuple[int, object]]:
        """The core has all results."""
        return []

    def _perform(self, action: StorageAction | actions.CheckPassword) -> None:
        result: object
        if isinstance(action, actions.CheckPassword):
            result = proves(action.password, action.verifier)
        else:
            (result,) = self.engine.perform((action,))
        if not isinstance(action, Prepare | DropLogs):
            self.broker.completed(action.id, result, self.now())

    def hold(self, *kinds: type) -> None:
        """Keep actions of these kinds back from the disk from now on."""
        self._hold = kinds

    def let_go(self, count: int | None = None) -> None:
        """Perform held actions, oldest first; without `count` all of them, and the actions that follow."""
        if count is None:
            self._hold = ()
        left = len(self.held) if count is None else count
        while self.held and left:
            left -= 1
            self._perform(self.held.popleft())
        self.run()

    def sleep(self, seconds: float, step: float = 1.0) -> None:
        """Let time pass; timers run once a `step`."""
        end = self.mono + seconds
        while self.mono < end:
            delta = min(step, end - self.mono)
            self.mono += delta
            self.wall_us += int(delta * 1e6)
            self.tick()

    def tick(self) -> None:
        self.broker.tick(self.now())
        self.run()

    # --- clients --------------------------------------------------------------------------------------------

    def client(self, profile: str = "log", virtual_host: str | None = None) -> Client:
        """A client whose session is open."""
        client = Client(self)
        client.ask(
            control.ConnectionOpen(protocol=control.Protocol(), virtual_host=virtual_host), control.Ready
        )
        client.ask(control.ConnectionProfile(profile=profile), control.Ok)
        return client

    def identity(self) -> bytes:
        """One that no peer had before."""
        self._identities += 1
        return b"peer-%d" % self._identities

    def control(self, *frames: bytes) -> list[tuple[bytes, ...]]:
        """Send a raw message to the control socket; returns the replies since the last call."""
        self.broker.control(frames, self.now())
        self.run()
        replies, self.sockets.replies = self.sockets.replies, []
        return replies

    def inbound_octets(self) -> int:
        """The broker's count of octets received and not settled."""
        return self.broker.statistics()["inbound-octets"]


__all__ = ["PORTS", "ROOT", "START_US", "Client", "Crashed", "Flow", "Rig", "Waiting", "packed", "unpacked"]
