from __future__ import annotations

from collections.abc import Sequence

import pytest

from mtl.client.control import Outcome
from mtl.client.flow import ClientFlow, State
from mtl.client.settings import Settings
from mtl.errors import Closed, Fenced, MtlError, Refused, Unreachable
from mtl.limits import HEARTBEAT_S, RECONNECT_DELAY_S
from mtl.protocol.heartbeat import Heartbeat, HeartbeatVerdict
from mtl.protocol.states import FORBIDDEN, LEASE_ENDED
from mtl.wire import commands, control
from mtl.wire.fields import EMPTY, Buffer, encode_table
from tests.support.memory_network import ENDPOINT, Bench, MemoryLink

LEASE = control.DataLease(port=7_000, lease="lease", heartbeat=5.0)


class User:
    """A reader or writer that records its calls."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.commands: list[commands.Command] = []
        self.together: list[commands.Command] = []
        self.takes = 0
        self.offered = 0
        self.again = 0
        self.useless: MtlError | None = None

    def lease_request(self) -> control.ConnectionReader | control.ConnectionWriter:
        return control.ConnectionReader(resources=["a"])

    def granted(self, lease: control.DataLease) -> None:
        if self.useless is not None:
            raise self.useless
        self.events.append("granted")

    def refused(self, error: Refused) -> Refused | None:
        self.again -= 1
        return None if self.again >= 0 else error

    def bound(self) -> None:
        self.events.append("bound")

    def command(self, command: commands.Content | commands.Confirm | commands.Reject) -> None:
        self.commands.append(command)

    def contents(self, like: commands.Content, first: int, bodies: Sequence[Buffer]) -> int:
        self.offered += 1
        taken = bodies[: self.takes]
        self.together += [
            commands.Content(number, like.resource, like.properties, body)
            for number, body in enumerate(taken, first)
        ]
        return len(taken)

    def answered(self, asked: commands.Summon | commands.Dismiss, ok: bool) -> None:
        self.events.append((asked, ok))

    def drained(self) -> None:
        self.events.append("drained")

    def writable(self) -> None:
        self.events.append("writable")

    def proven(self) -> None:
        self.events.append("proven")

    def down(self) -> None:
        self.events.append("down")

    def failed(self, error: MtlError) -> None:
        self.events.append(error)

    @property
    def error(self) -> object:
        return self.events[-1]


class Setting:
    def __init__(self, settings: Settings | None = None) -> None:
        self.bench = Bench(settings)
        self.user = User()
        self.flow = ClientFlow(self.bench.loop, self.bench.channel, self.user)
        self.flow.start()
        self.control = self.bench.ready()
        assert isinstance(self.control.asked(), control.ConnectionReader)

    def bound(self, lease: control.DataLease = LEASE) -> MemoryLink:
        data = self.bench.lease(self.control, lease)
        assert self.flow.state is State.BOUND
        self.user.events.clear()
        return data


@pytest.fixture
def at() -> Setting:
    return Setting()


@pytest.mark.requirement("MTL-54", "MTL-60", "MTL-61")
def test_a_lease_is_presented_at_the_endpoint_of_the_reply(at: Setting) -> None:
    at.control.answer(LEASE)
    at.bench.run()
    data = at.bench.last("data")
    assert data.endpoint == "tcp://broker:7000"
    [asked] = data.sent_commands()
    assert isinstance(asked, commands.Lease)
    assert asked.lease == "lease"
    assert at.user.events == ["granted"]
    data.command(commands.Response(asked.sequence, 200))
    at.bench.run()
    assert at.user.events[:2] == ["granted", "bound"]


def test_a_lease_request_without_reply_is_repeated_in_another_session(at: Setting) -> None:
    at.bench.run(at.bench.settings.request_timeout + 0.1)
    assert isinstance(at.bench.last("request").asked(), control.ConnectionOpen)


def test_commands_reach_the_user_and_unexpected_ones_are_dropped(at: Setting) -> None:
    data = at.bound()
    at.flow.send_request(commands.Summon, "a")
    [summon] = data.sent_commands()
    assert isinstance(summon, commands.Summon)
    data.command(commands.Content(1, "a", EMPTY, b"too early"))
    data.put(b"\xff", b"")
    data.command(commands.Response(summon.sequence, 200))
    data.command(commands.Content(1, "a", EMPTY, b""))
    data.command(commands.Confirm(1, multiple=True))
    at.bench.run()
    assert at.flow.dropped == 2
    assert at.user.commands == [commands.Content(1, "a", EMPTY, b""), commands.Confirm(1, multiple=True)]
    assert at.user.events == [(summon, True), "drained"]


@pytest.mark.requirement("MTL-100")
def test_a_ping_is_answered(at: Setting) -> None:
    data = at.bound()
    data.command(commands.Ping())
    at.bench.run()
    assert data.sent_commands() == [commands.Pong()]


def test_similar_consecutive_contents_are_delivered_together(at: Setting) -> None:
    data = at.bound()
    at.flow.send_request(commands.Summon, "a")
    [summon] = data.sent_commands()
    assert isinstance(summon, commands.Summon)
    data.command(commands.Response(summon.sequence, 200))
    alike = [commands.Content(n, "a", EMPTY, b"%d" % n) for n in range(1, 8)]
    other = commands.Content(8, "a", encode_table({"k": 1}), b"8")
    at.user.takes = 3
    for content in (*alike, other):
        data.command(content)
    at.bench.run()
    assert at.user.commands == [alike[0], other]
    assert at.user.together == alike[1:]
    at.user.takes = at.user.offered = 0
    for content in alike:
        data.command(content)
    at.bench.run()
    assert at.user.commands == [alike[0], other, *alike]
    assert at.user.offered == 1, "a row that is not wanted is not looked at again for each of its contents"


def test_contents_of_a_dismissed_resource_are_dropped(at: Setting) -> None:
    data = at.bound()
    at.user.takes = 10
    for kind in (commands.Summon, commands.Dismiss):
        at.flow.send_request(kind, "a")
        [asked] = data.sent_commands()
        assert isinstance(asked, commands.Summon | commands.Dismiss)
        data.command(commands.Response(asked.sequence, 200))
        data.command(commands.Content(1, "a", EMPTY, b""))
        data.command(commands.Content(2, "a", EMPTY, b""))
        at.bench.run()
    assert (len(at.user.commands), len(at.user.together), at.flow.dropped) == (1, 1, 2)


def test_contents_are_sent_on_a_bound_flow_only(at: Setting) -> None:
    contents = [commands.Content(1, "a", EMPTY, b"")]
    assert at.flow.send_contents(contents) == 0, "there is no lease yet"
    at.control.answer(LEASE)
    at.bench.run()
    data = at.bench.last("data")
    assert at.flow.send_contents(contents) == 0, "the lease is not accepted yet"
    at.bench.bind()
    assert at.flow.send_contents(contents) == 1
    assert data.sent_commands() == contents


def test_commands_without_room_in_the_socket_wait_in_order(at: Setting) -> None:
    data = at.bound()
    data.make_room(1)
    at.flow.send(commands.Confirm(1, multiple=True))
    at.flow.send(commands.Confirm(2, multiple=True))
    contents = [commands.Content(n, "a", EMPTY, b"") for n in (1, 2, 3)]
    assert not at.flow.send_contents(contents), "contents do not overtake"
    at.bench.run()
    assert data.sent_commands() == [commands.Confirm(1, multiple=True)]
    data.make_room()
    at.bench.run()
    assert data.sent_commands() == [commands.Confirm(2, multiple=True)]
    assert at.user.events == ["writable"]
    data.make_room(2)
    assert at.flow.send_contents(contents) == 2
    assert (data.sent_commands(), data.wants_room) == (contents[:2], True)


# --- losses -------------------------------------------------------------------------------------------------


def test_a_lost_connection_is_replaced_at_once_under_the_same_lease(at: Setting) -> None:
    first = at.bound()
    first.down()
    at.bench.run()
    assert first.closed
    assert at.user.events == ["down"]
    second = at.bench.bind()
    assert second is not first
    assert at.user.events[-2:] == ["bound", "drained"]
    assert at.control.sent == type(at.control.sent)(), "no request was needed"


def test_the_deadline_of_a_lost_connection_does_not_end_its_successor(at: Setting) -> None:
    at.control.answer(LEASE)
    at.bench.run()
    first = at.bench.last("data")
    first.down()
    at.bench.run(0.5)
    second = at.bench.bind()
    at.bench.run(2.0)
    assert (first.closed, second.closed) == (True, False)


def test_messages_before_the_end_of_a_connection_are_handled(at: Setting) -> None:
    data = at.bound()
    data.command(commands.Confirm(7, multiple=True))
    data.down()
    at.bench.run()
    assert at.user.commands == [commands.Confirm(7, multiple=True)]


def test_a_lease_unknown_to_the_broker_is_replaced(at: Setting) -> None:
    first = at.bound()
    first.down()
    at.bench.run()
    second = at.bench.last("data")
    [asked] = second.sent_commands()
    assert isinstance(asked, commands.Lease)
    second.command(commands.Response(asked.sequence, 403))
    at.bench.run()
    assert isinstance(at.control.asked(), control.ConnectionReader)
    at.control.answer(control.DataLease(port=7_001, lease="another"))
    at.bench.run()
    third = at.bench.last("data")
    assert (third.endpoint, third.sent_commands()) == ("tcp://broker:7001", [commands.Lease(3, "another")])


def test_a_flow_ended_by_the_broker_presents_its_lease_again(at: Setting) -> None:
    """After a pause of this process: the Summon is answered with 403, because the lease is no longer bound."""
    first = at.bound()
    at.flow.send_request(commands.Summon, "a")
    [summon] = first.sent_commands()
    assert isinstance(summon, commands.Summon)
    first.command(commands.Response(summon.sequence, 403))
    at.bench.run()
    assert first.closed
    assert at.user.events == ["down", "drained"]
    assert at.bench.bind() is not first
    assert "bound" in at.user.events


def test_a_fenced_flow_ends(at: Setting) -> None:
    at.bound().down()
    at.bench.run()
    data = at.bench.last("data")
    [asked] = data.sent_commands()
    assert isinstance(asked, commands.Lease)
    data.command(commands.Response(asked.sequence, 403))
    at.bench.run()
    at.control.asked()
    at.control.refuse(409, control.FENCED)
    at.bench.run(30.0)
    assert isinstance(at.user.error, Fenced)
    assert at.flow.state is State.OVER
    assert not at.control.sent


def test_a_lost_broker_is_unreachable_after_the_deadline(at: Setting) -> None:
    at.bound().down()
    while at.flow.state is not State.OVER:
        at.bench.run(0.05)
        for link in at.bench.network.links:
            if not link.closed:
                link.down()
    assert isinstance(at.user.error, Unreachable)
    assert at.bench.now - 1_000.0 == pytest.approx(10.0, abs=2.5)


def test_after_two_failed_connections_another_lease_is_requested(at: Setting) -> None:
    at.bound().down()
    at.bench.run()
    made = at.bench.count("data")
    at.bench.last("data").down()
    at.bench.run(0.1)
    assert at.bench.count("data") == made + 1
    at.bench.last("data").down()
    at.bench.run(0.2)
    assert isinstance(at.control.asked(), control.ConnectionReader)


def test_after_a_success_the_pauses_between_connections_start_again(at: Setting) -> None:
    data = at.bound()
    for _ in range(6):
        data.down()
        at.bench.run()
        at.bench.last("data").down()
        at.bench.run(RECONNECT_DELAY_S + 0.05)
        assert at.bench.last("data") is not data, "the first pause, not a longer one"
        data = at.bench.bind()


def test_a_silent_data_socket_is_unreachable_despite_live_control(at: Setting) -> None:
    at.control.answer(LEASE)
    while at.flow.state is not State.OVER and at.bench.now < 1_040.0:
        at.bench.run(0.5)
        request = at.bench.last("request")
        if request.sent:
            request.asked()
            request.answer(LEASE)
    assert isinstance(at.user.error, Unreachable)


@pytest.mark.requirement("MTL-103")
@pytest.mark.parametrize(
    ("ours", "the_brokers", "interval"),
    [
        (None, None, HEARTBEAT_S),  # a server of the RFC alone says nothing
        (None, 2.0, 2.0),
        (7.0, 2.0, 7.0),
        (0.0, 2.0, 0.0),
        (None, 0.0, 0.0),
    ],
)
def test_the_heartbeat_is_the_setting_else_the_brokers_else_the_default(
    ours: float | None, the_brokers: float | None, interval: float
) -> None:
    at = Setting(Settings(ENDPOINT, heartbeat=ours))
    data = at.bound(control.DataLease(port=7_000, lease="lease", heartbeat=the_brokers))
    if not interval:
        at.bench.run(60.0)
        assert (data.sent_commands(), data.closed) == ([], False)
        return
    at.bench.run(interval * 0.9)
    assert data.sent_commands() == []
    at.bench.run(interval * 0.4)
    assert data.sent_commands() == [commands.Ping()]


@pytest.mark.requirement("MTL-07", "MTL-99", "MTL-102", "MTL-104")
def test_a_silent_broker_is_pinged_and_then_disconnected(at: Setting) -> None:
    data = at.bound()
    at.bench.run(6.5)
    assert data.sent_commands() == [commands.Ping()]
    data.command(commands.Pong())
    at.bench.run(3.0)
    assert (data.sent_commands(), data.closed) == ([], False)
    at.bench.run(20.0)
    assert set(map(type, data.sent_commands())) == {commands.Ping}
    assert data.closed
    assert "down" in at.user.events


@pytest.mark.requirement("MTL-100")
def test_a_sent_command_takes_the_place_of_a_ping(at: Setting) -> None:
    data = at.bound()
    at.bench.run(4.0)
    data.command(commands.Pong())
    at.flow.send(commands.Confirm(1, multiple=True))
    assert data.sent_commands() == [commands.Confirm(1, multiple=True)]
    at.bench.run(2.0)
    assert data.sent_commands() == []


def test_sent_contents_take_the_place_of_a_ping(at: Setting) -> None:
    data = at.bound()
    at.bench.run(4.0)
    data.command(commands.Pong())
    assert at.flow.send_contents([commands.Content(1, "a", EMPTY, b"x")]) == 1
    assert isinstance(data.sent_commands()[0], commands.Content)
    at.bench.run(2.0)
    assert data.sent_commands() == []


def test_an_idle_flow_is_checked_once_per_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every check is a round of the IO thread, and a query may be idle for days."""
    checks = []
    check = Heartbeat.check

    def record_check(pulse: Heartbeat, now: float) -> HeartbeatVerdict:
        checks.append(now)
        return check(pulse, now)

    monkeypatch.setattr(Heartbeat, "check", record_check)
    at = Setting()
    data = at.bound()
    for _ in range(10):
        at.bench.run(LEASE.heartbeat or 0.0)
        data.command(commands.Pong())
    pings = data.sent_commands()
    assert pings == [commands.Ping()] * len(pings)
    assert 9 <= len(pings) <= len(checks) <= 12  # a timer may be called a little early


def test_a_refused_lease_is_requested_again_if_its_user_wants_that() -> None:
    at = Setting()
    at.user.again = 1
    at.control.refuse(409, control.DATA_LOSS, resource="a", first=1, end=2)
    at.bench.run()
    assert isinstance(at.control.asked(), control.ConnectionReader)
    at.control.refuse(404, control.UNKNOWN_RESOURCE)
    at.bench.run()
    assert isinstance(at.user.error, Refused)


def test_after_already_leased_another_session_is_used_once(at: Setting) -> None:
    at.control.refuse(403, control.ALREADY_LEASED)
    at.bench.run()
    at.control = at.bench.ready()
    assert isinstance(at.control.asked(), control.ConnectionReader)
    at.control.refuse(403, control.ALREADY_LEASED)
    at.bench.run()
    assert isinstance(at.user.error, Refused)


def test_a_useless_lease_ends_the_flow(at: Setting) -> None:
    at.user.useless = Closed("no echo")
    at.control.answer(LEASE)
    at.bench.run()
    assert at.user.events == [at.user.useless]
    assert at.bench.count("data") == 0


# --- awaited pings ------------------------------------------------------------------------------------------


def test_a_pong_answers_the_oldest_ping(at: Setting) -> None:
    data = at.bound()
    calls: list[int] = []
    for number in range(3):
        at.flow.ping(lambda _, number=number: calls.append(number))  # type: ignore[misc]
    assert data.sent_commands() == [commands.Ping()] * 3
    data.command(commands.Pong())
    data.command(commands.Pong())
    at.bench.run()
    assert calls == [0, 1]


def test_a_flow_ended_by_the_broker_is_restarted_after_a_probe(at: Setting) -> None:
    """As after a suspension of this process: the connection is alive, and the broker dropped later commands."""
    data = at.bound()
    calls: list[int] = []
    at.flow.ping(lambda _: calls.append(1))
    at.bench.run(1.5)
    probe = data.sent_commands()[-1]
    assert isinstance(probe, commands.Lease)
    data.command(commands.Response(probe.sequence, 201))
    at.bench.run()
    assert ("down" in at.user.events, data.closed) == (True, True)
    again = at.bench.last("data")
    [lease] = [x for x in again.sent_commands() if isinstance(x, commands.Lease)]
    again.command(commands.Response(lease.sequence, 201))
    at.bench.run()
    assert at.user.events.count("bound") == 1
    assert again.sent_commands() == [commands.Ping()]
    again.command(commands.Pong())
    at.bench.run()
    assert calls == [1]


def test_an_ended_lease_is_replaced_without_waiting_for_a_ping(at: Setting) -> None:
    data = at.bound()
    data.command(commands.Response(LEASE_ENDED, FORBIDDEN))
    at.bench.run()
    again = at.bench.last("data")
    assert again is not data
    [lease] = again.sent_commands()
    assert isinstance(lease, commands.Lease)
    again.command(commands.Response(lease.sequence, FORBIDDEN))
    at.bench.run()
    assert isinstance(at.control.asked(), control.ConnectionReader)


def test_a_probe_of_a_bound_lease_has_no_effect(at: Setting) -> None:
    data = at.bound()
    at.flow.ping(lambda _: None)
    at.bench.run(1.5)
    probe = data.sent_commands()[-1]
    assert isinstance(probe, commands.Lease)
    data.command(commands.Response(probe.sequence, 200))
    at.bench.run()
    assert ("down" in at.user.events, data.closed) == (False, False)


def test_a_pong_has_the_position_of_the_group(at: Setting) -> None:
    data = at.bound()
    calls: list[int | None] = []
    for _ in range(2):
        at.flow.ping(calls.append)
    data.command(commands.Pong(7))
    data.command(commands.Pong())
    at.bench.run()
    assert calls == [7, None]


def test_a_ping_is_repeated_on_the_next_connection(at: Setting) -> None:
    data = at.bound()
    calls: list[int] = []
    at.flow.ping(lambda _: calls.append(1))
    data.down()
    at.bench.run()
    at.flow.ping(lambda _: calls.append(2))
    second = at.bench.bind()
    assert second.sent_commands() == [commands.Ping(), commands.Ping()]
    second.command(commands.Pong())
    second.command(commands.Pong())
    at.bench.run()
    assert calls == [1, 2]


def test_a_ping_without_a_pong_makes_the_flow_present_its_lease_again(at: Setting) -> None:
    data = at.bound()
    at.flow.ping(lambda _: None)
    data.sent_commands()
    at.bench.run(1.1)
    [lease] = data.sent_commands()
    assert isinstance(lease, commands.Lease)
    data.command(commands.Response(lease.sequence, 403))
    at.bench.run()
    assert isinstance(at.control.asked(), control.ConnectionReader), (
        "the reply to this one says that we are fenced"
    )
    assert at.user.events[-2:] == ["down", "drained"]


# --- the end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_order", [False, True])
def test_close_ends_the_lease_and_then_the_connection(at: Setting, in_order: bool) -> None:
    """In this order for a consumer: otherwise the queue would count its contents as delivered."""
    data = at.bound()
    outcomes: list[Outcome] = []
    at.flow.close(outcomes.append, in_order=in_order)
    at.bench.run()
    before = data.closed
    close = at.control.asked()
    assert isinstance(close, control.LeaseClose)
    at.control.answer(control.LeaseClosed())
    at.bench.run()
    assert (before, data.closed) == (not in_order, True)
    assert outcomes == [control.LeaseClosed()]
    at.flow.close(outcomes.append, in_order=in_order)
    assert isinstance(outcomes[1], Closed)


def test_close_between_two_leases_gives_unknown_lease(at: Setting) -> None:
    """The broker restarted after all contents were confirmed: not an error of the caller."""
    at.bound().down()
    at.bench.run()
    data = at.bench.last("data")
    [asked] = data.sent_commands()
    assert isinstance(asked, commands.Lease)
    data.command(commands.Response(asked.sequence, 403))
    at.bench.run()
    assert isinstance(at.control.asked(), control.ConnectionReader)
    outcomes: list[Outcome] = []
    at.flow.close(outcomes.append)
    [outcome] = outcomes
    assert isinstance(outcome, Refused)
    assert (outcome.status, outcome.reason) == (404, control.UNKNOWN_LEASE)


def test_a_lease_granted_after_close_is_not_used(at: Setting) -> None:
    outcomes: list[Outcome] = []
    at.flow.close(outcomes.append)
    at.control.answer(LEASE)
    at.bench.run()
    assert isinstance(outcomes[0], Closed)
    assert (at.bench.count("data"), at.user.events) == (0, [])


def test_a_restart_closes_the_lease_and_requests_another(at: Setting) -> None:
    data = at.bound()
    at.flow.restart()
    at.bench.run()
    assert data.closed
    assert isinstance(at.control.asked(), control.LeaseClose)
    at.control.answer(control.LeaseClosed())
    at.bench.run()
    assert isinstance(at.control.asked(), control.ConnectionReader)
    assert at.user.events == ["down"]


def test_the_end_of_the_loop_ends_the_flow(at: Setting) -> None:
    at.bound()
    for member in list(at.bench.loop.members):
        member.abandoned(Closed("the end"))
    assert isinstance(at.user.error, Closed)
    assert not at.bench.loop.members
