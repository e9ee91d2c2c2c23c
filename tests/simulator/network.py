"""The network between simulated clients and the broker, in place of libzmq: the same interfaces and failures.

A `Wire` is one connection: a bounded first-in-first-out pipe in each direction; at the client's end a `SimLink` (REQ
or DEALER), at the broker's an identity of `Routers`. Failures of libzmq and TCP:

    reset     both ends get the end; messages in flight arrive in part
    silent    a DEALER reconnects by itself: bytes are lost in mid-stream, later ones have a new identity
    dead      no end gets an event, and no message arrives
    late      messages of an ended connection are delivered long after those of its successor
    stalled   a direction delivers no messages for a while, until its sender finds the pipe full
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from mtl.net import limits as net_limits
from mtl.net.endpoint import Curve, Link, LinkEvents, Poll, Watcher
from mtl.net.ports import Port
from mtl.net.router import SendOutcome
from mtl.wire.commands import Content, decode
from mtl.wire.fields import Buffer
from tests.simulator.world import Event, World
from tests.support.links import OneByOne

ENDPOINT = "tcp://sim:1"
PORTS = {Port.CONTROL: 1, Port.PACKED: 2, Port.PLAIN: 3}
_BY_NUMBER = {number: port for port, number in PORTS.items()}

Message = tuple[bytes, bytes]


@dataclass
class Weather:
    """Properties of the network: the usual delay of a message in seconds, the capacity of a pipe in messages, and the
    share of 202s lost with their connection: then the broker has granted a lease unknown to its client.
    """

    delay_s: tuple[float, float] = (0.0001, 0.003)
    late_s: tuple[float, float] = (0.01, 3.0)
    room: int = 64
    lost_leases: float = 0.0


class Pipe:
    """One direction of a connection. `arrived` gets messages, in order, a random number at a time."""

    def __init__(self, world: World, weather: Weather, arrived: Callable[[Message], None]) -> None:
        self._world = world
        self._weather = weather
        self._arrived = arrived
        self._flying: deque[Message] = deque()
        self._move: Event | None = None
        self.taken: Callable[[], None] = lambda: None
        self.held = 0
        """Messages put and not yet read by the receiver."""
        self.open = False
        self.dead = False

    @property
    def room(self) -> bool:
        """Whether another message fits."""
        return self.held < self._weather.room

    def put(self, message: Message) -> bool:
        """Send; False without room."""
        if not self.room:
            return False
        self.held += 1
        if self.dead:
            return True
        self._flying.append(message)
        self._schedule(0.0)
        return True

    def read(self) -> None:
        """The receiver took one."""
        self.held -= 1
        self.taken()

    def begin(self) -> None:
        """The connection is established."""
        self.open = True
        self._schedule(0.0)

    def stall(self, seconds: float) -> None:
        """Deliver no messages for a while."""
        if self._move is not None:
            self._move.cancel()
        self._move = None
        self._schedule(seconds)

    def lose(self, *, keep: int) -> None:
        """Lose all messages in flight except the first `keep`."""
        while len(self._flying) > keep:
            self._flying.pop()
            self.held -= 1

    def end(self, keep: int, late: float) -> None:
        """End the connection; the first `keep` messages still arrive, `late` seconds from now."""
        self.lose(keep=keep)
        if self._flying:
            self.stall(late)

    def cut(self, gap: int, keep: int) -> list[Message]:
        """Lose `gap` messages after the first `keep`; later ones belong to another connection."""
        flying = list(self._flying)
        self.lose(keep=keep)
        return flying[keep + gap :]

    @property
    def flying(self) -> int:
        """Messages in flight."""
        return len(self._flying)

    def _schedule(self, extra: float) -> None:
        if not self.open or not self._flying or (self._move is not None and self._move.pending):
            return
        delay = extra + self._world.between(*self._weather.delay_s)
        self._move = self._world.after(delay, "move", self._moved)

    def _moved(self) -> None:
        if self._flying:
            for _ in range(1 + self._world.upto(len(self._flying) - 1)):
                self._arrived(self._flying.popleft())
        self._schedule(0.0)


class Wire:
    """One connection, from its handshake to its end."""

    def __init__(self, routers: Routers, link: SimLink, port: Port, identity: bytes) -> None:
        world, weather = routers.world, routers.weather
        self.link: SimLink | None = link
        self.port = port
        self.identity = identity
        self.up = Pipe(world, weather, lambda message: routers.arrived(self, message))
        self.down = Pipe(world, weather, self._to_client)
        self.up.taken = link.room_again

    def __repr__(self) -> str:
        return f"{self.port.value}-{self.identity.hex()[-4:]}"

    def _to_client(self, message: Message) -> None:
        if self.link is not None:
            self.link.arrived(self.down, message)


class SimLink(OneByOne):
    """The client's end: a REQ or DEALER that connects once."""

    def __init__(self, network: ClientNetwork, port: Port) -> None:
        self.endpoint = f"tcp://sim:{PORTS[port]}"
        self.port = port
        self.wire: Wire | None = None
        self.happened = LinkEvents(0)
        self.wants_room = False
        self.closed = False
        self._network = network
        self.inbox: deque[tuple[Pipe, Message]] = deque()
        self._before: deque[Message] = deque()

    # --- calls of the client --------------------------------------------------------------------------------

    def send(self, first: bytes, second: Buffer) -> bool:
        """Put a message into the pipe; before the handshake into a queue."""
        message = (first, bytes(second))
        if self.wire is not None:
            return self.wire.up.put(message)
        if len(self._before) >= self._network.routers.weather.room:
            return False
        self._before.append(message)
        return True

    def receive(self) -> Message | None:
        """The next message."""
        if not self.inbox:
            return None
        pipe, message = self.inbox.popleft()
        pipe.read()
        return message

    def close(self) -> None:
        """Messages just sent may still arrive, even after messages of the next connection."""
        if not self.closed:
            self.closed = True
            if self.wire is not None:
                self._network.routers.hang_up(self.wire)

    # --- events ---------------------------------------------------------------------------------------------

    def connected(self, wire: Wire) -> None:
        """The handshake is complete."""
        self.wire = wire
        wire.up.begin()
        wire.down.begin()
        while self._before:
            wire.up.put(self._before.popleft())
        self.report(LinkEvents.UP)

    def arrived(self, pipe: Pipe, message: Message) -> None:
        """A message came in."""
        if not self.closed:
            self.inbox.append((pipe, message))
            self._network.wake()

    def room_again(self) -> None:
        """The broker read something."""
        if self.wants_room and not self.closed:
            self._network.wake()

    def report(self, what: LinkEvents) -> None:
        """Report UP or DOWN."""
        if not self.closed:
            self.happened |= what
            self._network.wake()

    def ready(self) -> LinkEvents:
        """The present events; UP and DOWN once."""
        what, self.happened = self.happened, LinkEvents(0)
        if self.inbox:
            what |= LinkEvents.READABLE
        if self.wants_room and self.wire is not None and self.wire.up.room:
            what |= LinkEvents.WRITABLE
        return what


def message_text(port: Port, message: tuple[bytes, Buffer]) -> str:
    """A message as text."""
    if port is Port.CONTROL:
        return f"{message[0].decode()} {bytes(message[1]).decode():.200}"
    command = decode(*message)
    if isinstance(command, Content):
        return f"Content {command.sequence} {command.resource} {bytes(command.body)[:20]!r}"
    return repr(command)


class SimPoll:
    """A poll that never waits: the world calls the loop when something happened."""

    def __init__(self) -> None:
        self._links: dict[SimLink, Watcher] = {}

    def add(self, link: Link, watcher: Watcher) -> None:
        """Watch a link."""
        assert isinstance(link, SimLink)
        self._links[link] = watcher

    def remove(self, link: Link) -> None:
        """Stop watching a link."""
        assert isinstance(link, SimLink)
        self._links.pop(link, None)

    def watch_writable(self, link: Link, wanted: bool) -> None:
        """Whether the client waits for room."""
        assert isinstance(link, SimLink)
        link.wants_room = wanted

    def wait(self, timeout: float | None) -> Iterable[tuple[Watcher, Link, LinkEvents]]:
        """The events so far; messages before the end of a connection."""
        news = [(watcher, link, link.ready()) for link, watcher in self._links.items()]
        ends = [(watcher, link, LinkEvents.DOWN) for watcher, link, what in news if LinkEvents.DOWN in what]
        return [
            (watcher, link, what & ~LinkEvents.DOWN)
            for watcher, link, what in news
            if what & ~LinkEvents.DOWN
        ] + ends

    @property
    def may_have_events(self) -> bool:
        """Whether the next `wait` would return events."""
        return any(
            link.happened or link.inbox or (link.wants_room and link.wire is not None and link.wire.up.room)
            for link in self._links
        )

    def fileno(self) -> int:
        """None: the world runs the rounds."""
        return -1

    def wake(self) -> None:
        """No thread waits."""

    def close(self) -> None:
        """There is nothing to close."""


class ClientNetwork:
    """The network of one client process: `wake` is called when one of its links has events."""

    def __init__(self, routers: Routers, wake: Callable[[], None]) -> None:
        self.routers = routers
        self.wake = wake
        self.links: list[SimLink] = []

    def request(self, endpoint: str, curve: Curve | None = None) -> Link:
        """A REQ."""
        return self._connect(endpoint)

    def data(self, endpoint: str, *, packed: bool, curve: Curve | None = None) -> Link:
        """A DEALER."""
        return self._connect(endpoint)

    def poll(self) -> Poll:
        """A poll without links."""
        return SimPoll()

    def _connect(self, endpoint: str) -> SimLink:
        link = SimLink(self, _BY_NUMBER[int(endpoint.rpartition(":")[2])])
        self.links = [link for link in self.links if not link.closed]
        self.links.append(link)
        self.routers.connect(link)
        return link


class Routers:
    """The broker's three sockets. `listening`: whether a broker runs; `wake` is called when a message arrives."""

    def __init__(self, world: World, weather: Weather) -> None:
        self.world = world
        self.weather = weather
        self.listening = False
        self.wake: Callable[[], None] = lambda: None
        self.wires: dict[tuple[Port, bytes], Wire] = {}
        self._inbox: dict[Port, deque[tuple[Wire, Message]]] = {port: deque() for port in PORTS}
        self._identities = 0

    # --- calls of the broker --------------------------------------------------------------------------------

    def open(self, wake: Callable[[], None]) -> None:
        """A broker binds its sockets."""
        self.listening = True
        self.wake = wake
        self._identities = self.world.random.getrandbits(32)

    def take_in(self) -> Iterator[tuple[Port, bytes, Message]]:
        """Receive some of the arrived messages, control before data."""
        for port, inbox in self._inbox.items():
            for _ in range(min(len(inbox), net_limits.DRAIN_MESSAGES)):
                wire, message = inbox.popleft()
                wire.up.read()
                self.world.note("heard", lambda: f"{wire} {message_text(port, message)}")  # noqa: B023 called at once
                yield port, wire.identity, message

    def reply(self, frames: Sequence[bytes], owner: str) -> SendOutcome:
        """A reply; the envelope of a REQ is its identity and an empty frame."""
        identity, _, status, body = frames
        return self.send((Port.CONTROL, identity), status, body, owner)

    def send(self, peer: tuple[Port, bytes], header: bytes, body: Buffer, _owner: str) -> SendOutcome:
        """One message of two frames to an identity."""
        port, identity = peer
        wire = self.wires.get((port, identity))
        if wire is None:
            return SendOutcome.GONE
        self.world.note("said", lambda: f"{wire} {message_text(port, (header, body))}")
        if port is Port.CONTROL and header == b"202" and self.world.chance(self.weather.lost_leases):
            self.world.note("lost-lease", lambda: str(wire))
            self.reset(wire)
            return SendOutcome.OK
        return SendOutcome.OK if wire.down.put((header, bytes(body))) else SendOutcome.FULL

    def send_contents(
        self, peer: tuple[Port, bytes], headers: Sequence[bytes], bodies: Sequence[Buffer], owner: str
    ) -> tuple[int, SendOutcome]:
        """Messages of two frames in a row, as far as they get."""
        for number, (header, body) in enumerate(zip(headers, bodies, strict=True)):
            sent = self.send(peer, header, body, owner)
            if sent is not SendOutcome.OK:
                return number, sent
        return len(headers), SendOutcome.OK

    # --- failures of the network ----------------------------------------------------------------------------

    def arrived(self, wire: Wire, message: Message) -> None:
        """A message of a client arrived."""
        if self.listening:
            self._inbox[wire.port].append((wire, message))
            self.wake()

    def connect(self, link: SimLink) -> None:
        """Connect a client: refused without a listening broker."""
        delay = self.world.between(*self.weather.delay_s)

        def arrive() -> None:
            if link.closed:
                return
            if not self.listening:
                link.report(LinkEvents.DOWN)
                return
            link.connected(self._wire(link))

        self.world.after(delay, "connect", arrive)

    def _wire(self, link: SimLink) -> Wire:
        self._identities = (self._identities + 1) & 0xFFFFFFFF
        identity = b"\0" + self._identities.to_bytes(4, "big")
        wire = self.wires[link.port, identity] = Wire(self, link, link.port, identity)
        return wire

    def hang_up(self, wire: Wire) -> None:
        """The client closed: its last messages may still arrive later; the broker gets the end at some time."""
        world = self.world
        late = world.between(*self.weather.late_s) if world.chance(0.5) else 0.0
        wire.link = None
        wire.up.end(world.upto(wire.up.flying), late)
        self._forget(wire)

    def _forget(self, wire: Wire) -> None:
        def gone() -> None:
            if self.wires.get((wire.port, wire.identity)) is wire:
                del self.wires[wire.port, wire.identity]

        self.world.after(self.world.between(*self.weather.late_s), "gone", gone)

    # --- faults ---------------------------------------------------------------------------------------------

    def reset(self, wire: Wire) -> None:
        """Reset the connection; both ends get the event."""
        world, link = self.world, wire.link
        wire.up.end(world.upto(wire.up.flying), 0.0)
        wire.down.end(world.upto(wire.down.flying), 0.0)
        if link is not None:
            self._report_down(link)
        self._forget(wire)

    def reconnect(self, wire: Wire) -> None:
        """Reconnect as the library of a plain DEALER does: silently, with messages in flight lost."""
        link, world = wire.link, self.world
        if link is None or not self.listening:
            return
        keep = world.upto(wire.up.flying)
        rest = wire.up.cut(world.upto(wire.up.flying - keep), keep)
        if world.chance(0.5):
            wire.up.stall(
                world.between(*self.weather.late_s)
            )  # its last frames come after those of the new one
        wire.down.end(0, 0.0)
        wire.link = None
        self._forget(wire)
        link.wire = None
        fresh = self._wire(link)
        link.connected(fresh)
        for message in rest:
            fresh.up.put(message)

    def die(self, wire: Wire) -> None:
        """No more messages arrive in either direction, without an event; the broker's library detects it in the end."""
        for pipe in (wire.up, wire.down):
            pipe.lose(keep=0)
            pipe.dead = True
        self._forget(wire)

    def crash(self, *, silent: bool) -> None:
        """The broker's process has died; its clients get the end, or (if the machine has died) do not."""
        self.listening = False
        self.wake = lambda: None
        for inbox in self._inbox.values():
            inbox.clear()
        wires, self.wires = self.wires, {}
        for wire in wires.values():
            wire.up.lose(keep=0)
            wire.up.dead = True
            link = wire.link
            if silent:
                wire.down.lose(keep=0)
                wire.down.dead = True
                continue
            wire.down.end(self.world.upto(wire.down.flying), 0.0)
            if link is not None:
                self._report_down(link)

    def _report_down(self, link: SimLink) -> None:
        """The client gets the end at some time."""
        self.world.after(
            self.world.between(*self.weather.late_s), "down", lambda: link.report(LinkEvents.DOWN)
        )
