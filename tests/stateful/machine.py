"""Random well-formed and ill-formed commands of several clients, to the broker and to the model."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mtl.errors import Refused
from mtl.net.ports import Port
from mtl.wire import commands as c
from mtl.wire import control as w
from mtl.wire.fields import EMPTY
from tests.stateful.model import TEST_RESOURCE, Model, Reader, Sent, Writer
from tests.support.core import PORTS, Client, Flow, Rig

FLOWS = 4
MOST_LEASES = 8
NAMES = ("a", "b")

flows = st.integers(0, FLOWS - 1)
asked = st.sampled_from((*NAMES, TEST_RESOURCE, "unknown"))
names = asked | st.just("")
sequences = st.integers(0, 12) | st.just((1 << 64) - 1)


class BrokerAndModel(RuleBasedStateMachine):
    """Two sessions (one per profile), four data connections, any lease on any of them."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig()
        self.model = Model()
        self.clients: dict[str, Client] = {p: self.rig.client(p) for p in ("test", "log")}
        self.flows = [Flow(self.rig, PORTS[Port.PLAIN]) for _ in range(FLOWS)]
        self.number = 0

    @initialize(full=st.booleans(), window=st.integers(1, 4), apart=st.booleans())
    def begin(self, full: bool, window: int, apart: bool) -> None:
        """Somebody writes and somebody reads in each profile, on connections of their own or not."""
        for turn, (profile, name) in enumerate((("log", "a"), ("test", TEST_RESOURCE))):
            if profile == "log":
                self.create(name)
            self.writer(profile, name, full and profile == "log")
            self.reader(profile, name, full and profile == "log", window)
            for flow, token in zip((turn, turn + 2 * apart), list(self.model.leases)[-2:], strict=True):
                self._lease(flow, token)
            self.summon(turn + 2 * apart, name)

    # --- requests -------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES))
    def create(self, name: str) -> None:
        if name in self.model.contents:
            refused = self.clients["log"].refused(w.ResourceCreate(resource=name))
            assert (refused.status, refused.reason) == (409, w.EXISTS)
        else:
            self.clients["log"].create(name)
            self.model.contents[name] = []

    @rule(profile=st.sampled_from(("test", "log")), name=asked, full=st.booleans())
    @precondition(lambda self: len(self.model.leases) < MOST_LEASES)
    def writer(self, profile: str, name: str, full: bool) -> None:
        request = w.Writer(resources=[name], confirm="full" if full else "none")
        token = self._granted(profile, name, full, request)
        if token:
            self.model.leases[token] = Writer(profile, name, full)

    @rule(profile=st.sampled_from(("test", "log")), name=asked, full=st.booleans(), window=st.integers(1, 4))
    @precondition(lambda self: len(self.model.leases) < MOST_LEASES)
    def reader(self, profile: str, name: str, full: bool, window: int) -> None:
        request = w.Reader(
            resources=[name],
            confirm="full" if full else "none",
            from_="earliest" if profile == "log" else None,
            window=w.Window(contents=window) if profile == "log" else None,
        )
        token = self._granted(profile, name, full, request)
        if token:
            self.model.leases[token] = Reader(profile, name, full, window)

    def _granted(self, profile: str, name: str, full: bool, request: w.Reader | w.Writer) -> str | None:
        """The lease that the documents grant; else the refusal is theirs, too."""
        if profile == "test":
            status = 404 if name != TEST_RESOURCE else 501 if full else 202
        else:
            status = 404 if name not in self.model.contents else 202
        if status == 202:
            return self.clients[profile].ask(request, w.DataLease).lease
        found = self.clients[profile].refused(request).status
        # Which of two mistakes is told first is nobody's business.
        assert found == status or (profile == "test" and full and found == 501), (found, status)
        return None

    @rule(profile=st.sampled_from(("test", "log")), data=st.data())
    @precondition(lambda self: self.model.leases)
    def close(self, profile: str, data: st.DataObject) -> None:
        """Whoever has the token may close it; a second time it is not there."""
        token = data.draw(st.sampled_from(sorted(self.model.leases)))
        try:
            self.clients["log"].ask(w.LeaseClose(lease=token), w.LeaseClosed)
        except Refused as refused:
            raise AssertionError(f"{refused}") from refused
        self.model.close(token)
        assert self.clients["log"].refused(w.LeaseClose(lease=token)).reason == w.UNKNOWN_LEASE

    @rule(frames=st.lists(st.binary(max_size=20), max_size=4))
    def garbage_on_the_control_socket(self, frames: list[bytes]) -> None:
        """Never an answer, but for a command that there is not in a body that is JSON."""
        replies = self.rig.control(b"somebody", b"", *frames)
        assert all(reply[2] in {b"400", b"501"} for reply in replies)

    # --- commands -------------------------------------------------------------------------------------------

    @rule(flow=flows, data=st.data())
    def lease(self, flow: int, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from([*sorted(self.model.leases), "", "0" * 32]))
        self._lease(flow, token)

    def _lease(self, flow: int, token: str) -> None:
        self.number += 1
        self._sends(flow, c.Lease(self.number, token), self.model.lease(flow, self.number, token))

    @rule(flow=flows, name=names)
    def summon(self, flow: int, name: str) -> None:
        self.number += 1
        self._sends(flow, c.Summon(self.number, name), self.model.summon(flow, self.number, name))

    @rule(flow=flows, name=names)
    def dismiss(self, flow: int, name: str) -> None:
        self.number += 1
        self._sends(flow, c.Dismiss(self.number, name), self.model.dismiss(flow, self.number, name))

    @rule(data=st.data(), count=st.integers(1, 5), off=st.sampled_from((0, 0, 0, 0, -1, 1, 7)))
    def contents(self, data: st.DataObject, count: int, off: int) -> None:
        """As a writer goes on: mostly the numbers that come next."""
        writers = [x for x in self.model.leases.values() if isinstance(x, Writer) and x.flow is not None]
        if not writers:
            return
        writer = data.draw(st.sampled_from(writers))
        assert writer.flow is not None
        first = max(0, writer.expected + off)
        for number in range(first, first + count):
            self.content(
                writer.flow, number, data.draw(st.sampled_from((writer.resource, ""))), b"%d" % number
            )

    @rule(data=st.data(), multiple=st.booleans())
    def confirm(self, data: st.DataObject, multiple: bool) -> None:
        """As a reader goes on: something of what it was sent."""
        readers = [x for x in self.model.leases.values() if isinstance(x, Reader) and x.unsettled]
        if readers:
            reader = data.draw(st.sampled_from(readers))
            if reader.flow is not None:
                self.settle(reader.flow, data.draw(st.sampled_from(reader.unsettled)), multiple, False)

    @rule(data=st.data())
    def summon_own(self, data: st.DataObject) -> None:
        readers = [x for x in self.model.leases.values() if isinstance(x, Reader) and x.flow is not None]
        if readers:
            reader = data.draw(st.sampled_from(readers))
            assert reader.flow is not None
            turn = data.draw(st.sampled_from((self.summon, self.summon, self.dismiss)))
            turn(reader.flow, reader.resource)

    @rule(flow=flows, number=sequences, name=names, body=st.binary(max_size=3))
    def content(self, flow: int, number: int, name: str, body: bytes) -> None:
        sent = self.model.content(flow, number, name, body)
        self._sends(flow, c.Content(number, name, EMPTY, body), sent)

    @rule(flow=flows, sequence=sequences, multiple=st.booleans(), rejected=st.booleans())
    def settle(self, flow: int, sequence: int, multiple: bool, rejected: bool) -> None:
        command = c.Reject(sequence, multiple, False) if rejected else c.Confirm(sequence, multiple)
        self._sends(flow, command, self.model.settled(flow, sequence, multiple=multiple))

    @rule(flow=flows, sequence=sequences, multiple=st.booleans())
    def recycle(self, flow: int, sequence: int, multiple: bool) -> None:
        """In the profile log a content stays unsettled then, until the next bind."""
        self._sends(flow, c.Reject(sequence, multiple, True), {})

    @rule(flow=flows)
    def ping(self, flow: int) -> None:
        self._sends(flow, c.Ping(), self.model.ping(flow))

    @rule(flow=flows, command=st.sampled_from((c.Pong(), c.Response(1, 200), c.Response(9, 403))))
    def out_of_place(self, flow: int, command: c.Command) -> None:
        self._sends(flow, command, {})

    @rule(flow=flows, header=st.binary(max_size=30), body=st.binary(max_size=3))
    def garbage(self, flow: int, header: bytes, body: bytes) -> None:
        """Nothing well-formed is as short as this and begins so."""
        self.flows[flow].raw(b"\xf0" + header, body)
        self._sent({})

    def _sends(self, flow: int, command: c.Command, expected: Sent) -> None:
        self.flows[flow].send(command)
        self._sent(expected)

    def _sent(self, expected: Sent) -> None:
        """Every flow got what the model says. Contents have an order of their own beside other commands."""
        for number, flow in enumerate(self.flows):
            found = [plain(x) for x in flow.sent() if not isinstance(x, c.Ping)]
            assert parts(found) == parts(expected.get(number, [])), f"on flow {number}"

    # --- always ---------------------------------------------------------------------------------------------

    @invariant()
    def everything_taken_in_is_stored(self) -> None:
        assert self.rig.inbound_octets() == 0
        for name, stored in self.model.contents.items():
            found = self.rig.broker.resources.need("/", name)
            assert (found.earliest, found.end) == (1, len(stored) + 1)


def plain(command: c.Command) -> c.Command:
    """Without the broker's own properties, above all the time."""
    if isinstance(command, c.Content):
        return c.Content(command.sequence, command.resource, EMPTY, bytes(command.body))
    return command


def parts(commands: list[c.Command]) -> tuple[list[c.Command], list[c.Command]]:
    contents: list[c.Command] = [x for x in commands if isinstance(x, c.Content)]
    return contents, [x for x in commands if not isinstance(x, c.Content)]
