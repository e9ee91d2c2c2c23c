"""The client's network in memory: links whose other end is the test, and a loop driven by the test.

bench = Bench()
bench.loop.post(...)            # in place of an application's thread
bench.run()                     # until nothing happens any more
link = bench.last("request")    # the newest REQ; `link.asked()` is the client's request, `link.answer(reply)` replies
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from mtl.client.control import Channel
from mtl.client.loop import Loop
from mtl.client.settings import Settings
from mtl.errors import OptionError
from mtl.net.endpoint import Curve, Frames, Link, LinkEvents, Poll, Watcher
from mtl.net.wakeup import Wakeup
from mtl.wire import commands, control
from mtl.wire.fields import Buffer
from tests.support.links import OneByOne

ENDPOINT = "tcp://broker:5975"


class MemoryLink(OneByOne):
    """A link between the client and the test."""

    def __init__(self, network: MemoryNetwork, kind: str, endpoint: str, *, packed: bool = False) -> None:
        self.endpoint = endpoint
        self.kind = kind
        self.packed = packed
        self.sent: deque[Frames] = deque()
        """Messages of the client that the test has not processed."""
        self.inbox: deque[Frames] = deque()
        self.room = 1 << 30
        self.closed = False
        self.pending = LinkEvents(0)
        self.wants_room = False
        self._network = network

    @property
    def happened(self) -> LinkEvents:
        """The events that the poll would report."""
        what = self.pending
        if self.inbox:
            what |= LinkEvents.READABLE
        if self.wants_room and self.room:
            what |= LinkEvents.WRITABLE
        return what

    # --- the client's end -----------------------------------------------------------------------------------

    def send(self, first: bytes, second: Buffer) -> bool:
        assert not self.closed
        if not self.room:
            return False
        self.room -= 1
        self.sent.append((first, second))
        return True

    def receive(self) -> Frames | None:
        assert not self.closed
        return self.inbox.popleft() if self.inbox else None

    def close(self) -> None:
        self.closed = True

    # --- the test's end -------------------------------------------------------------------------------------

    def put(self, first: bytes, second: Buffer) -> None:
        """The client receives two frames."""
        self.inbox.append((first, second))

    def up(self) -> None:
        """The connection is established."""
        self.pending |= LinkEvents.UP

    def down(self) -> None:
        """End the connection, after the messages put before."""
        self.pending |= LinkEvents.DOWN

    def make_room(self, count: int = 1 << 30) -> None:
        """Let the socket accept this number of further messages."""
        self.room = count

    def asked(self) -> control.Request:
        """The one request that the client sent."""
        [(name, body)] = self.sent
        self.sent.clear()
        return control.decode_request([name, body])

    def answer(self, reply: control.Reply) -> None:
        """Reply to a request."""
        name, body = control.encode_reply(reply.code, reply)
        self.put(name, body)

    def refuse(self, status: int, reason: str, **members: object) -> None:
        """Refuse a request."""
        body = {"status": "no", "reason": reason, "message": "it cannot be", **members}
        name, text = control.encode_reply(status, body)
        self.put(name, text)

    def sent_commands(self) -> list[commands.Command]:
        """The data commands that the client sent since the last call."""
        sent = [commands.decode(*frames) for frames in self.sent]
        self.sent.clear()
        return sent

    def command(self, command: commands.Command) -> None:
        """The client receives a data command."""
        self.put(*commands.encode(command))


class MemoryPoll:
    """A poll that never waits: the test sets the time."""

    def __init__(self, network: MemoryNetwork) -> None:
        self.watched: dict[MemoryLink, Watcher] = {}
        self.woken = 0
        self._descriptor: Wakeup | None = None
        self._network = network

    def add(self, link: Link, watcher: Watcher) -> None:
        assert isinstance(link, MemoryLink)
        self.watched[link] = watcher

    def remove(self, link: Link) -> None:
        assert isinstance(link, MemoryLink)
        self.watched.pop(link, None)

    def watch_writable(self, link: Link, wanted: bool) -> None:
        assert isinstance(link, MemoryLink)
        link.wants_room = wanted

    @property
    def may_have_events(self) -> bool:
        return any(link.happened for link in self.watched)

    def fileno(self) -> int:
        """A descriptor that is never readable: a test posts a call after each change."""
        self._descriptor = self._descriptor or Wakeup()
        return self._descriptor.fileno()

    def wait(self, timeout: float | None) -> Iterable[tuple[Watcher, Link, LinkEvents]]:
        happened: list[tuple[Watcher, Link, LinkEvents]] = []
        for link, watcher in self.watched.items():
            what = link.happened
            link.pending = LinkEvents(0)
            if what:
                happened.append((watcher, link, what))
        return happened

    def wake(self) -> None:
        self.woken += 1

    def close(self) -> None:
        self.watched.clear()
        if self._descriptor is not None:
            self._descriptor.close()


class MemoryNetwork:
    """Creates links and records them."""

    def __init__(self) -> None:
        self.links: list[MemoryLink] = []
        self.polls: list[MemoryPoll] = []

    def request(self, endpoint: str, curve: Curve | None = None) -> Link:
        if "invalid" in endpoint:
            raise OptionError(f"{endpoint} is invalid")
        return self._made(MemoryLink(self, "request", endpoint))

    def data(self, endpoint: str, *, packed: bool, curve: Curve | None = None) -> Link:
        return self._made(MemoryLink(self, "data", endpoint, packed=packed))

    def poll(self) -> Poll:
        self.polls.append(MemoryPoll(self))
        return self.polls[-1]

    def _made(self, link: MemoryLink) -> MemoryLink:
        self.links.append(link)
        return link


class Bench:
    """A client's loop that runs on request of the test, at the time set by the test."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.now = 1_000.0
        self.network = MemoryNetwork()
        self.loop = Loop(self.network, lambda: self.now)
        self.settings = settings or Settings(ENDPOINT, request_timeout=1.0, retry_deadline=10.0)
        self.channel = Channel(self.loop, self.settings, None)

    def run(self, seconds: float = 0.0) -> None:
        """Let time pass, in steps small enough for every timer, and run all pending calls."""
        until = self.now + seconds
        while True:
            for _ in range(20):
                self.loop.step(0.0)
            if self.now >= until:
                return
            self.now = min(until, self.now + 0.05)

    def last(self, kind: str) -> MemoryLink:
        """The newest link of a kind, "request" or "data"."""
        return next(link for link in reversed(self.network.links) if link.kind == kind)

    def count(self, kind: str) -> int:
        """How many links of a kind were made."""
        return sum(link.kind == kind for link in self.network.links)

    def ready(self) -> MemoryLink:
        """Bring the session up to the profile; returns the link for the next request."""
        self.run()
        link = self.last("request")
        assert isinstance(link.asked(), control.ConnectionOpen)
        link.answer(control.Ready(profiles=["log"], session="token"))
        self.run()
        assert link.asked() == control.ConnectionProfile(profile="log", session="token")
        link.answer(control.Ok())
        self.run()
        return link

    def lease(self, link: MemoryLink, lease: control.DataLease) -> MemoryLink:
        """Grant the lease requested on `link`, and bind it; returns the data link."""
        link.answer(lease)
        self.run()
        return self.bind()

    def bind(self) -> MemoryLink:
        """Accept the Lease on the newest data link."""
        data = self.last("data")
        [asked] = data.sent_commands()
        assert isinstance(asked, commands.Lease)
        data.command(commands.Response(asked.sequence, 200))
        self.run()
        return data
