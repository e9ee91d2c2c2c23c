"""Random well-formed and ill-formed commands of several clients, to the broker and to the model."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from mtl.errors import Refused
from mtl.net.ports import Port
from mtl.wire import commands, control
from mtl.wire.fields import EMPTY, decode_table
from tests.stateful.model import TEST_RESOURCE, Model, Reader, Sent, Writer
from tests.stateful.queues import Consumer, Handed, Queue
from tests.support.core import PORTS, Client, Flow, Rig

FLOWS = 6
MOST_LEASES = 12
NAMES = ("a", "b")
PROFILES = ("test", "log", "queue")
DELIVERIES = 3
"""The number of deliveries after which a content is a dead letter."""

TICK_S = 0.13
"""A time a little longer than the interval of queue checks; no multiple of it ends with a pause."""

LARGE = 10_000
"""Octets of a large content."""

windows = st.integers(1, 4)
window_octets = st.sampled_from((100_000, 13_000, 24_000))
"""The windows of consumers; the smaller ones have room for one or two large contents."""

flows = st.integers(0, FLOWS - 1)
asked = st.sampled_from((*NAMES, TEST_RESOURCE, "unknown"))
names = asked | st.just("")
sequences = st.integers(0, 12) | st.just((1 << 64) - 1)


class BrokerAndModel(RuleBasedStateMachine):
    """Three sessions (one per profile), six data connections, any lease on any of them."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(heartbeat_s=60.0)  # no flow ends by silence
        self.model = Model()
        self.clients: dict[str, Client] = {p: self.rig.client(p) for p in PROFILES}
        self.flows = [Flow(self.rig, PORTS[Port.PLAIN]) for _ in range(FLOWS)]
        self.number = 0

    @initialize(full=st.booleans(), window=windows, octets=window_octets, apart=st.booleans())
    def begin(self, full: bool, window: int, octets: int, apart: bool) -> None:
        """A writer and a reader in each profile, on separate connections or a shared one."""
        for turn, (profile, name) in enumerate((("log", "a"), ("test", TEST_RESOURCE))):
            if profile == "log":
                self.create(name)
            self.writer(profile, name, full and profile == "log")
            self.reader(profile, name, full and profile == "log", window, octets)
            for flow, token in zip((turn, turn + 2 * apart), list(self.model.leases)[-2:], strict=True):
                self._lease(flow, token)
            self.summon(turn + 2 * apart, name)
        self.create("b")
        self.writer("queue", "b", True)
        self._lease(4, list(self.model.leases)[-1])
        for flow in (4, 5):
            self.reader("queue", "b", full, window, octets)
            self._lease(flow, list(self.model.leases)[-1])
            self.summon(flow, "b")
        for number in range(1, 4):
            self.content(4, number, "b", b"%d" % number)

    # --- requests -------------------------------------------------------------------------------------------

    @rule(name=st.sampled_from(NAMES))
    def create(self, name: str) -> None:
        if name in self.model.contents:
            refused = self.clients["log"].refused(control.ResourceCreate(resource=name))
            assert (refused.status, refused.reason) == (409, control.EXISTS)
        else:
            self.clients["log"].create(name, max_deliveries=DELIVERIES)
            self.model.contents[name] = []

    @rule(profile=st.sampled_from(PROFILES), name=asked, full=st.booleans())
    @precondition(lambda self: len(self.model.leases) < MOST_LEASES)
    def writer(self, profile: str, name: str, full: bool) -> None:
        request = control.ConnectionWriter(resources=[name], confirm="full" if full else "none")
        token = self._granted(profile, name, full, request)
        if token:
            self.model.leases[token] = Writer(profile, name, full)

    @rule(
        profile=st.sampled_from(PROFILES),
        name=asked,
        full=st.booleans(),
        window=windows,
        octets=window_octets,
    )
    @precondition(lambda self: len(self.model.leases) < MOST_LEASES)
    def reader(self, profile: str, name: str, full: bool, window: int, octets: int) -> None:
        request = control.ConnectionReader(
            resources=[name],
            confirm="full" if full else "none",
            from_=None if profile == "test" else "earliest",
            window=None
            if profile == "test"
            else control.Window(contents=window, bytes=octets if profile == "queue" else None),
        )
        token = self._granted(profile, name, full, request)
        if token and profile == "queue":
            queue = self.model.queues.setdefault(name, Queue(self.model.contents[name], DELIVERIES))
            self.model.leases[token] = Consumer(name, full, window, octets, queue)
        elif token:
            self.model.leases[token] = Reader(profile, name, full, window)

    def _granted(
        self,
        profile: str,
        name: str,
        full: bool,
        request: control.ConnectionReader | control.ConnectionWriter,
    ) -> str | None:
        """The lease granted according to the documents; otherwise the refusal must agree as well."""
        if profile == "test":
            status = 404 if name != TEST_RESOURCE else 501 if full else 202
        else:
            status = 404 if name not in self.model.contents else 202
        if status == 202:
            return self.clients[profile].ask(request, control.DataLease).lease
        found = self.clients[profile].refused(request).status
        # The order of two errors is not specified.
        assert found == status or (profile == "test" and full and found == 501), (found, status)
        return None

    @rule(data=st.data())
    @precondition(lambda self: self.model.leases)
    def close(self, data: st.DataObject) -> None:
        """Any session with the token may close the lease; a second close finds no lease."""
        token = data.draw(st.sampled_from(sorted(self.model.leases)))
        try:
            self.clients["log"].ask(control.LeaseClose(lease=token), control.LeaseClosed)
        except Refused as refused:
            raise AssertionError(f"{refused}") from refused
        self.model.close(token)
        self._sent({})
        assert self.clients["log"].refused(control.LeaseClose(lease=token)).reason == control.UNKNOWN_LEASE

    @rule(frames=st.lists(st.binary(max_size=20), max_size=4))
    def garbage_on_the_control_socket(self, frames: list[bytes]) -> None:
        """No answer, except to an unknown command with a JSON body."""
        replies = self.rig.control(b"somebody", b"", *frames)
        assert all(reply[2] in {b"400", b"501"} for reply in replies)

    # --- commands -------------------------------------------------------------------------------------------

    @rule(flow=flows, data=st.data())
    def lease(self, flow: int, data: st.DataObject) -> None:
        token = data.draw(st.sampled_from([*sorted(self.model.leases), "", "0" * 32]))
        self._lease(flow, token)

    def _lease(self, flow: int, token: str) -> None:
        self.number += 1
        self._sends(flow, commands.Lease(self.number, token), self.model.lease(flow, self.number, token))

    @rule(flow=flows, name=names)
    def summon(self, flow: int, name: str) -> None:
        self.number += 1
        self._sends(flow, commands.Summon(self.number, name), self.model.summon(flow, self.number, name))

    @rule(flow=flows, name=names)
    def dismiss(self, flow: int, name: str) -> None:
        self.number += 1
        self._sends(flow, commands.Dismiss(self.number, name), self.model.dismiss(flow, self.number, name))

    @rule(
        data=st.data(),
        count=st.integers(1, 5),
        off=st.sampled_from((0, 0, 0, 0, -1, 1, 7)),
        large=st.booleans(),
    )
    def contents(self, data: st.DataObject, count: int, off: int, large: bool) -> None:
        """Contents of a writer: mostly with the next numbers."""
        writers = [x for x in self.model.leases.values() if isinstance(x, Writer) and x.flow is not None]
        if not writers:
            return
        writer = data.draw(st.sampled_from(writers))
        assert writer.flow is not None
        first = max(0, writer.expected + off)
        for number in range(first, first + count):
            name = data.draw(st.sampled_from((writer.resource, "")))
            self.content(writer.flow, number, name, (b"%d" % number).zfill(LARGE if large else 0))

    @rule(
        data=st.data(),
        multiple=st.booleans(),
        how=st.sampled_from(("confirm", "confirm", "reject", "recycle")),
    )
    def answer(self, data: st.DataObject, multiple: bool, how: str) -> None:
        """Answers of a reader: some of its contents are settled or recycled."""
        readers = [x for x in self.model.leases.values() if not isinstance(x, Writer) and x.unsettled]
        if readers:
            reader = data.draw(st.sampled_from(readers))
            if reader.flow is not None:
                self.settle(reader.flow, data.draw(st.sampled_from(list(reader.unsettled))), multiple, how)

    @rule(data=st.data(), rounds=st.integers(1, DELIVERIES))
    def send_back(self, data: st.DataObject, rounds: int) -> None:
        """A consumer that recycles its contents, and gets them again."""
        consumers = [x for x in self.model.leases.values() if isinstance(x, Consumer) and x.having]
        if consumers:
            consumer = data.draw(st.sampled_from(consumers))
            for _ in range(rounds):
                if consumer.flow is not None and consumer.having:
                    self.settle(consumer.flow, max(consumer.having), True, "recycle")
                    self.wait(1)

    @rule(ticks=st.integers(1, 4))
    def wait(self, ticks: int) -> None:
        """Pauses end, and dead letters are moved."""
        for _ in range(ticks):
            self.rig.sleep(TICK_S, TICK_S)
            self.model.wait(TICK_S)
            self._sent({})

    @rule(name=st.sampled_from(NAMES))
    def describe_queue(self, name: str) -> None:
        """The description of a queue, and its dead letters once they are moved: two checks later."""
        found = self.clients["queue"].ask(control.QueueDescribe(resource=name), control.QueueList).queues
        assert bool(found) is (name in self.model.queues)
        if found:
            self.wait(3)
            queue = self.model.queues[name]
            (description,) = (
                self.clients["queue"].ask(control.QueueDescribe(resource=name), control.QueueList).queues
            )
            assert {number: getattr(description, number) for number in queue.numbers} == queue.numbers
            if queue.dead:
                letters = self.clients["log"].read(f"{name}.dead")
                assert sorted(letters) == sorted(queue.stored[position - 1] for position in queue.dead)

    @rule(data=st.data())
    def summon_own(self, data: st.DataObject) -> None:
        readers = [x for x in self.model.leases.values() if not isinstance(x, Writer) and x.flow is not None]
        if readers:
            reader = data.draw(st.sampled_from(readers))
            assert reader.flow is not None
            turn = data.draw(st.sampled_from((self.summon, self.summon, self.dismiss)))
            turn(reader.flow, reader.resource)

    @rule(flow=flows, number=sequences, name=names, body=st.binary(max_size=3))
    def content(self, flow: int, number: int, name: str, body: bytes) -> None:
        sent = self.model.content(flow, number, name, body)
        self._sends(flow, commands.Content(number, name, EMPTY, body), sent)

    @rule(
        flow=flows,
        sequence=sequences,
        multiple=st.booleans(),
        how=st.sampled_from(("confirm", "reject", "recycle")),
    )
    def settle(self, flow: int, sequence: int, multiple: bool, how: str) -> None:
        expected = self.model.settled(flow, sequence, multiple=multiple, how=how)
        command = (
            commands.Confirm(sequence, multiple)
            if how == "confirm"
            else commands.Reject(sequence, multiple, how == "recycle")
        )
        self._sends(flow, command, expected)

    @rule(flow=flows)
    def ping(self, flow: int) -> None:
        self._sends(flow, commands.Ping(), self.model.ping(flow))

    @rule(
        flow=flows,
        command=st.sampled_from((commands.Pong(), commands.Response(1, 200), commands.Response(9, 403))),
    )
    def out_of_place(self, flow: int, command: commands.Command) -> None:
        self._sends(flow, command, {})

    @rule(flow=flows, header=st.binary(max_size=30), body=st.binary(max_size=3))
    def garbage(self, flow: int, header: bytes, body: bytes) -> None:
        """Octets that cannot be a well-formed command."""
        self.flows[flow].raw(b"\xf0" + header, body)
        self._sent({})

    def _sends(self, flow: int, command: commands.Command, expected: Sent) -> None:
        self.flows[flow].send(command)
        self._sent(expected)

    def _sent(self, expected: Sent) -> None:
        """Check that every flow got the commands of the model. Contents are ordered separately from other commands."""
        given: dict[Consumer, list[Handed]] = {}
        for number, flow in enumerate(self.flows):
            contents, others = parts([x for x in flow.sent() if not isinstance(x, commands.Ping)])
            wanted, answers = parts(expected.get(number, []))
            assert others == answers, f"on flow {number}"
            consumer = self.model.consumer(number)
            if consumer is None:
                assert [plain(x) for x in contents] == wanted, f"on flow {number}"
            else:
                assert all(x.resource == consumer.resource for x in contents)
                given[consumer] = [handed(x) for x in contents]
        for queue in self.model.queues.values():
            queue.handed_out({consumer: given[consumer] for consumer in queue.consumers if consumer in given})
            assert not queue.waiting(), "a content waits although a consumer has room"

    # --- always ---------------------------------------------------------------------------------------------

    @invariant()
    def everything_taken_in_is_stored(self) -> None:
        assert self.rig.inbound_octets() == 0
        for name, stored in self.model.contents.items():
            found = self.rig.broker.parts.resources.need("/", name)
            assert (found.earliest, found.end) == (1, len(stored) + 1)


def plain(content: commands.Content) -> commands.Content:
    """Without the broker's own properties, above all the time."""
    return commands.Content(content.sequence, content.resource, EMPTY, bytes(content.body))


def handed(content: commands.Content) -> Handed:
    """The delivery data in the broker's properties for a consumer."""
    properties = decode_table(content.properties)
    position = properties[commands.SEQUENCE]
    assert isinstance(position, int)
    return Handed(
        content.sequence, position, properties.get(commands.REDELIVERED) is True, bytes(content.body)
    )


def parts(sent: list[commands.Command]) -> tuple[list[commands.Content], list[commands.Command]]:
    contents = [x for x in sent if isinstance(x, commands.Content)]
    return contents, [x for x in sent if not isinstance(x, commands.Content)]
