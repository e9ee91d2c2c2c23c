"""A small broker in memory behind the client's network interface, for tests with application threads.

It answers at once, in the client's IO thread. It knows one resource, packs nothing, loses nothing, and does what its
switches say: `silent` answers nothing (and counts that in `ignored`), `holding` keeps Confirms back, `refuse` rejects
a body for good.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from mtl.client.io import IoThread
from mtl.client.loop import Loop
from mtl.net.endpoint import Curve, Link, LinkEvents, Poll, Watcher
from mtl.wire import commands, control
from mtl.wire.commands import packed_count
from mtl.wire.fields import Buffer
from mtl.wire.packs import trust_pack, unpack
from tests.support.memory_network import MemoryLink, MemoryNetwork, MemoryPoll

RESOURCE = "orders"


class BrokerLink(MemoryLink):
    """A link whose commands are answered by the broker."""

    broker: MemoryBroker
    resource_summoned = False

    def send(self, first: bytes, second: Buffer) -> bool:
        self.broker.handle(self, first, second)
        return True


class WaitingPoll(MemoryPoll):
    """Waits for a wake-up or for messages, as a real poll does."""

    def __init__(self, network: MemoryBroker) -> None:
        super().__init__(network)
        self.woken_up = threading.Event()

    def wait(self, timeout: float | None) -> Iterable[tuple[Watcher, Link, LinkEvents]]:
        happened = list(super().wait(timeout))
        if not happened:
            self.woken_up.wait(timeout)
            self.woken_up.clear()
            happened = list(super().wait(timeout))
        return happened

    def wake(self) -> None:
        self.woken_up.set()


class MemoryBroker(MemoryNetwork):
    """See the module. `stored` are the bodies, `asked` the requests and `confirmed` the readers' Confirms."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[bytes] = []
        self.asked: list[control.Request] = []
        self.confirmed: list[int] = []
        self.silent = False
        self.ignored = 0
        self.holding = False
        self.fenced = False
        self.refuse: bytes | None = None
        self.answers: dict[type[control.Request], Callable[[], list[bytes]]] = {}
        self._writers: dict[BrokerLink, int] = {}
        self._held: dict[BrokerLink, commands.Confirm | commands.Reject] = {}

    def request(self, endpoint: str, curve: Curve | None = None) -> Link:
        return self._link("request", endpoint)

    def data(self, endpoint: str, *, packed: bool, curve: Curve | None = None) -> Link:
        return self._link("data", endpoint)

    def _link(self, kind: str, endpoint: str) -> BrokerLink:
        link = BrokerLink(self, kind, endpoint)
        link.broker = self
        self.links.append(link)
        return link

    def poll(self) -> Poll:
        return WaitingPoll(self)

    def loop(self) -> IoThread:
        """A loop over this broker, in a thread."""
        made = IoThread(self)
        made.start()
        return made

    # --- control --------------------------------------------------------------------------------------------

    def handle(self, link: BrokerLink, first: bytes, second: Buffer) -> None:
        if self.silent:
            self.ignored += 1
            return
        if link.kind == "request":
            request = control.decode_request([first, second])
            self.asked.append(request)
            name, body = self._reply(request)
            link.put(name, body)
        else:
            self._command(link, commands.decode(first, second))

    def _reply(self, request: control.Request) -> list[bytes]:
        if type(request) in self.answers:
            return self.answers[type(request)]()
        reply: control.Reply
        if isinstance(request, control.ConnectionOpen):
            reply = control.Ready(profiles=["log", "queue", "test"], session="token")
        elif isinstance(request, control.ConnectionReader):
            end = len(self.stored) + 1
            start = (
                request.from_ if isinstance(request.from_, int) else end if request.from_ == "latest" else 1
            )
            reply = control.DataLease(
                port=1,
                lease="reader",
                from_=start,
                until=request.until,
                window=request.window,
                epoch=None if request.group is None else 7,
                position=None if request.group is None else 1,
                incarnation="i",
            )
        elif isinstance(request, control.ConnectionWriter):
            stage = None if request.stage is None else "stage"
            reply = control.DataLease(
                port=1,
                lease="writer",
                last={},
                packed=request.packed,
                stage=stage,
                max_content=10_000,
                max_pack=20_000,
                heartbeat=0,
            )
        elif isinstance(request, control.LeaseClose):
            reply = control.LeaseClosed(
                stage=control.StageSealed(stage="stage", contents={RESOURCE: len(self.stored)})
            )
        else:
            reply = control.Ok()
        return control.encode_reply(reply.code, reply)

    # --- data -----------------------------------------------------------------------------------------------

    def _command(self, link: BrokerLink, command: commands.Command) -> None:
        if isinstance(command, commands.Lease):
            link.command(commands.Response(command.sequence, 403 if self.fenced else 200))
        elif isinstance(command, commands.Summon):
            link.command(commands.Response(command.sequence, 200))
            link.resource_summoned = True
            self.deliver(link)
        elif isinstance(command, commands.Content):
            self._content(link, command)
        elif isinstance(command, commands.Confirm):
            self.confirmed.append(command.sequence)
        elif isinstance(command, commands.Ping) and not self.fenced:
            link.command(commands.Pong())

    def deliver(self, link: BrokerLink | None = None) -> None:
        """Send all stored contents to a reader that summoned the resource."""
        for receiver in [link] if link is not None else self.links:
            if isinstance(receiver, BrokerLink) and receiver.resource_summoned:
                for sequence, body in enumerate(self.stored, 1):
                    receiver.command(commands.Content(sequence, RESOURCE, b"\0\0\0\0", body))

    def _content(self, link: BrokerLink, content: commands.Content) -> None:
        count = packed_count(content.properties)
        if bytes(content.body) == self.refuse:
            link.command(commands.Reject(content.sequence, multiple=False, recycle=False))
            return
        if count is None:
            self.stored.append(bytes(content.body))
        else:
            self.stored += [bytes(body) for _, body in unpack(trust_pack(content.body))]
        confirm = commands.Confirm(content.sequence + (count or 1) - 1, multiple=True)
        if self.holding:
            self._held[link] = confirm
        else:
            link.command(confirm)

    def let_go(self, loop: Loop) -> None:
        """Send the Confirms held back."""

        def confirm() -> None:
            self.holding = False
            for link, held in self._held.items():
                link.command(held)
            self._held.clear()

        loop.post(confirm)
