"""A client of the broker's core without sockets: requests and data flows. See `tests.support.core`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec

from mtl import limits
from mtl.broker import actions
from mtl.errors import Refused
from mtl.net.origin import NO_ORIGIN, Connection, Origin
from mtl.net.ports import Port
from mtl.wire import commands, control
from mtl.wire.fields import EMPTY, Buffer, encode_table
from mtl.wire.packs import decode_pack, encode_pack, unpack

if TYPE_CHECKING:
    from tests.support.core import Rig

T = TypeVar("T")

PORTS = {Port.PACKED: 7001, Port.PLAIN: 7002}


class Waiting:
    """A request that was not answered at once."""

    def __init__(self, client: Client, request: control.Request) -> None:
        self._client = client
        self._request = request

    @property
    def answered(self) -> bool:
        return self._client.answers(self._request) is not None

    def reply(self, kind: type[T]) -> T:
        """The reply; raises the errors of the client."""
        frames = self._client.answers(self._request)
        assert frames is not None, "no answer yet"
        reply = control.decode_reply(frames, type(self._request))
        assert isinstance(reply, kind), reply
        return reply


class Client:
    """A REQ socket and its DEALERs. `session` is the token in requests; with None the identity identifies the session.
    `origin` is the origin that the transport reports.
    """

    def __init__(self, rig: Rig, origin: Origin = NO_ORIGIN) -> None:
        self.rig = rig
        self.origin = origin
        self.identity = rig.identity()
        self.session: str | None = None
        self._number = 0
        self._replies: dict[int, tuple[bytes, ...]] = {}
        self._asked: dict[int, int] = {}

    # --- requests -------------------------------------------------------------------------------------------

    def begin(self, request: control.Request) -> Waiting:
        """Send a request whose reply may arrive later."""
        if self.session is not None:
            request = msgspec.structs.replace(request, session=self.session)
        self._number += 1
        mark = b"%d" % self._number
        self._asked[id(request)] = self._number
        frames = [self.identity, mark, b"", *control.encode_request(request)]
        self.rig.broker.control(frames, self.rig.now(), self.origin)
        self.rig.run()
        return Waiting(self, request)

    def answers(self, request: control.Request) -> tuple[bytes, ...] | None:
        """The reply to a request, found by the mark in its envelope (MTL-113: the envelope is unchanged)."""
        mine = [x for x in self.rig.sockets.replies if x[0] == self.identity]
        for frames in mine:
            self.rig.sockets.replies.remove(frames)
            number = int(frames[1])
            assert frames[2] == b""
            assert number not in self._replies, "answered twice (MTL-04)"
            self._replies[number] = frames[3:]
        return self._replies.get(self._asked[id(request)])

    def ask(self, request: control.Request, kind: type[T]) -> T:
        """A request that is answered at once; raises the refusal."""
        return self.begin(request).reply(kind)

    def refused(self, request: control.Request) -> Refused:
        """The refusal of a request that must not succeed."""
        try:
            reply = self.begin(request).reply(object)
        except Refused as e:
            return e
        raise AssertionError(f"not refused: {reply}")

    # --- shorthands -----------------------------------------------------------------------------------------

    def refused_in_time(self, request: control.Request) -> Refused:
        """The refusal of a request delayed by the disk, within the request timeout of a client."""
        waiting = self.begin(request)
        self.rig.sleep(limits.REQUEST_TIMEOUT_S / 2, step=0.1)
        try:
            waiting.reply(object)
        except Refused as e:
            return e
        raise AssertionError(f"{request} was not refused")

    def create(self, *names: str, **more: Any) -> None:
        for name in names:
            self.ask(control.ResourceCreate(resource=name, **more), control.ResourceCreated)

    def describe(self, name: str) -> control.Description:
        return self.ask(control.ResourceDescribe(resource=name), control.DescriptionList).resources[0]

    def writer(self, *resources: str, confirm: str = "full", **more: Any) -> control.DataLease:
        return self.ask(
            control.ConnectionWriter(resources=list(resources), confirm=confirm, **more), control.DataLease
        )

    def reader(
        self, *resources: str, confirm: str = "full", start: Any = "earliest", **more: Any
    ) -> control.DataLease:
        return self.ask(
            control.ConnectionReader(resources=list(resources), confirm=confirm, from_=start, **more),
            control.DataLease,
        )

    def stage(self, application: str, version: int, *resources: str, **more: Any) -> control.DataLease:
        spec = control.StageSpec(application=application, version=version, **more)
        return self.writer(*resources, stage=spec)

    def close_lease(self, lease: control.DataLease) -> control.LeaseClosed:
        return self.ask(control.LeaseClose(lease=lease.lease), control.LeaseClosed)

    def commit(
        self, application: str, version: int, *stages: str, query: str | None = None
    ) -> control.Committed:
        return self.ask(
            control.StageCommit(application=application, version=version, stages=list(stages), query=query),
            control.Committed,
        )

    def fill(self, resource: str, bodies: Iterable[bytes]) -> None:
        """Write plain contents, durably."""
        lease = self.writer(resource)
        flow = self.flow(lease)
        for number, body in enumerate(bodies, 1):
            flow.content(number, body)
        self.close_lease(lease)

    def staged(self, application: str, version: int, resource: str, bodies: Sequence[bytes]) -> str:
        """A sealed stage with these contents; its public id."""
        lease = self.stage(application, version, resource)
        flow = self.flow(lease)
        for number, body in enumerate(bodies, 1):
            flow.content(number, body)
        self.close_lease(lease)
        assert lease.stage is not None
        return lease.stage

    def read(self, resource: str, start: Any = "earliest") -> list[bytes]:
        """All visible contents, read by a plain reader."""
        lease = self.reader(resource, start=start, window=control.Window(contents=1_000_000, bytes=1 << 30))
        flow = self.flow(lease)
        flow.summon(resource)
        bodies = [bytes(x.body) for x in flow.contents()]
        self.close_lease(lease)
        return bodies

    def sequences(self, resource: str) -> tuple[int, int]:
        """earliest and next."""
        found = self.describe(resource)
        return found.earliest, found.next

    # --- data flows -----------------------------------------------------------------------------------------

    def flow(self, lease: control.DataLease, *, on: Flow | None = None) -> Flow:
        """A data flow that presents the lease: a new one, or the same as another."""
        flow = on if on is not None else Flow(self.rig, lease.port, self.origin.connection)
        assert flow.lease(lease.lease) == (201 if lease.binding else 200)
        return flow


class Flow:
    """One DEALER. `sent` returns and removes the commands of the broker; Pings are not answered."""

    def __init__(self, rig: Rig, port: int, connection: Connection = "") -> None:
        self.rig = rig
        self.connection = connection
        self.peer: actions.Peer = (next(p for p, n in PORTS.items() if n == port), rig.identity())
        self._number = 0

    # --- out ------------------------------------------------------------------------------------------------

    def send(self, command: commands.Command) -> None:
        header, body = commands.encode(command)
        self.raw(header, body)

    def raw(self, header: bytes, body: Buffer = b"") -> None:
        self.queue(header, body)
        self.rig.run()

    def queue(self, header: bytes, body: Buffer = b"") -> None:
        """Send without a turn of the broker: queued commands arrive in one turn."""
        self.rig.broker.data(self.peer, header, body, self.rig.now(), self.connection)
        self.rig.sender.on_frame(self.peer)

    def lease(self, token: str) -> int:
        return self._asked(lambda n: commands.Lease(n, token))

    def summon(self, resource: str) -> int:
        return self._asked(lambda n: commands.Summon(n, resource))

    def dismiss(self, resource: str) -> int:
        return self._asked(lambda n: commands.Dismiss(n, resource))

    def _asked(self, make: Callable[[int], commands.Command]) -> int:
        """Send a command that gets a Response; its code. The Response is taken out, the rest stays."""
        self._number += 1
        self.send(make(self._number))
        sent = self.rig.sockets.sent.get(self.peer, [])
        for message in sent:
            command = commands.decode(*message)
            if isinstance(command, commands.Response) and command.sequence == self._number:
                sent.remove(message)
                return command.code
        raise AssertionError("no Response")

    def content(
        self, sequence: int, body: bytes = b"", resource: str = "", properties: dict[str, Any] | None = None
    ) -> None:
        self.send(
            commands.Content(sequence, resource, encode_table(properties) if properties else EMPTY, body)
        )

    def pack(
        self, sequence: int, bodies: Sequence[bytes], resource: str = "", count: int | None = None
    ) -> None:
        self.send(packed(sequence, bodies, resource, count))

    def confirm(self, sequence: int, multiple: bool = True) -> None:
        self.send(commands.Confirm(sequence, multiple))

    def reject(
        self, sequence: int, *, multiple: bool = False, recycle: bool = False, reason: str = ""
    ) -> None:
        self.send(commands.Reject(sequence, multiple, recycle, reason))

    def ponged(self) -> bool:
        """Whether a Ping is answered. The Pong is taken out, the rest stays."""
        return self.pong() is not None

    def pong(self) -> commands.Pong | None:
        """The answer to a Ping, removed from `sent`; None without one."""
        self.send(commands.Ping())
        sent = self.rig.sockets.sent.get(self.peer, [])
        for message in sent:
            command = commands.decode(*message)
            if isinstance(command, commands.Pong):
                sent.remove(message)
                return command
        return None

    # --- in -------------------------------------------------------------------------------------------------

    def sent(self) -> list[commands.Command]:
        """All commands of the broker since the last call."""
        return [commands.decode(*message) for message in self.rig.sockets.sent.pop(self.peer, [])]

    def contents(self) -> list[commands.Content]:
        """The same; all commands must be contents or Pings."""
        found = [x for x in self.sent() if not isinstance(x, commands.Ping)]
        assert all(isinstance(x, commands.Content) for x in found), found
        return cast("list[commands.Content]", found)

    def bodies(self) -> list[bytes]:
        return [bytes(x.body) for x in self.contents()]

    def numbers(self) -> list[int]:
        return [x.sequence for x in self.contents()]

    def room(self, messages: int | None) -> None:
        """Set how many messages the peer accepts before it is full; None: any number."""
        if messages is None:
            self.rig.sockets.room.pop(self.peer, None)
        else:
            self.rig.sockets.room[self.peer] = messages

    def vanish(self) -> None:
        """Disconnect the peer."""
        self.rig.sockets.gone.add(self.peer)


def packed(
    sequence: int, bodies: Sequence[bytes], resource: str = "", count: int | None = None
) -> commands.Content:
    """A pack as a writer sends it; `count` gives it a wrong number of contents."""
    properties = commands.packed_properties(count if count is not None else len(bodies))
    return commands.Content(sequence, resource, properties, bytes(encode_pack(bodies)))


def unpacked(content: commands.Content) -> list[bytes]:
    """The bodies in a delivered pack."""
    count = commands.packed_count(content.properties)
    assert count is not None
    return [bytes(body) for _, body in unpack(decode_pack(content.body, count))]
