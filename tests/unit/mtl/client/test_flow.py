from __future__ import annotations

from collections.abc import Sequence

import pytest

from mtl.client.control import Outcome
from mtl.client.flow import Flow, State
from mtl.client.settings import Settings
from mtl.errors import Closed, Fenced, MtlError, Refused, Unreachable
from mtl.limits import HEARTBEAT_S
from mtl.protocol.heartbeat import Heartbeat, HeartbeatVerdict
from mtl.protocol.states import FORBIDDEN, LEASE_ENDED
from mtl.wire import commands as c
from mtl.wire import control as w
from mtl.wire.fields import EMPTY, Buffer, encode_table
from tests.support.memory_network import ENDPOINT, Bench, MemoryLink

LEASE = w.DataLease(port=7_000, lease="lease", heartbeat=5.0)


class User:
    """A reader or writer that writes down what it is told."""

    def __init__(self) -> None:
        self.said: list[object] = []
        self.commands: list[c.Command] = []
        self.together: list[c.Command] = []
        self.takes = 0
        self.offered = 0
        self.again = 0
        self.useless: MtlError | None = None

    def lease_request(self) -> w.Reader | w.Writer:
        return w.Reader(resources=["a"])

    def granted(self, lease: w.DataLease) -> None:
        if self.useless is not None:
            raise self.useless
        self.said.append("granted")

    def refused(self, error: Refused) -> Refused | None:
        self.again -= 1
        return None if self.again >= 0 else error

    def bound(self) -> None:
        self.said.append("bound")

    def command(self, command: c.Content | c.Confirm | c.Reject) -> None:
        self.commands.append(command)

    def contents(self, like: c.Content, first: int, bodies: Sequence[Buffer]) -> int:
        self.offered += 1
        taken = bodies[: self.takes]
        self.together += [
            c.Content(number, like.resource, like.properties, body)
            for number, body in enumerate(taken, first)
        ]
        return len(taken)

    def answered(self, asked: c.Summon | c.Dismiss, ok: bool) -> None:
        self.said.append((asked, ok))

    def drained(self) -> None:
        self.said.append("drained")

    def writable(self) -> None:
        self.said.append("writable")

    def down(self) -> None:
        self.said.append("down")

    def failed(self, error: MtlError) -> None:
        self.said.append(error)

    @property
    def error(self) -> object:
        return self.said[-1]


class Setting:
    def __init__(self, settings: Settings | None = None) -> None:
        self.bench = Bench(settings)
        self.user = User()
        self.flow = Flow(self.bench.loop, self.bench.channel, self.user)
        self.flow.start()
        self.control = self.bench.ready()
        assert isinstance(self.control.asked(), w.Reader)

    def bound(self, lease: w.DataLease = LEASE) -> MemoryLink:
        data = self.bench.lease(self.control, lease)
        assert self.flow.state is State.BOUND
        self.user.said.clear()
        return data


@pytest.fixture
def at() -> Setting:
    return Setting()


@pytest.mark.requirement("MTL-54", "MTL-60", "MTL-61")
def test_a_lease_is_presented_where_the_reply_says(at: Setting) -> None:
    at.control.answer(LEASE)
    at.bench.run()
    data = at.bench.last("data")
    assert data.endpoint == "tcp://broker:7000"
    [asked] = data.commands()
    assert isinstance(asked, c.Lease)
    assert asked.lease == "lease"
    assert at.user.said == ["granted"]
    data.command(c.Response(asked.sequence, 200))
    at.bench.run()
    assert at.user.said[:2] == ["granted", "bound"]


def test_a_lease_whose_reply_is_lost_is_asked_for_in_another_session(at: Setting) -> None:
    at.bench.run(at.bench.settings.request_timeout + 0.1)
    assert isinstance(at.bench.last("request").asked(), w.Open)


def test_commands_go_to_the_user_and_strays_are_dropped(at: Setting) -> None:
    data = at.bound()
    at.flow.ask(c.Summon, "a")
    [summon] = data.commands()
    assert isinstance(summon, c.Summon)
    data.command(c.Content(1, "a", EMPTY, b"too early"))
    data.put(b"\xff", b"")
    data.command(c.Response(summon.sequence, 200))
    data.command(c.Content(1, "a", EMPTY, b""))
    data.command(c.Confirm(1, multiple=True))
    at.bench.run()
    assert at.flow.dropped == 2
    assert at.user.commands == [c.Content(1, "a", EMPTY, b""), c.Confirm(1, multiple=True)]
    assert at.user.said == [(summon, True), "drained"]


@pytest.mark.requirement("MTL-100")
def test_a_ping_is_answered(at: Setting) -> None:
    data = at.bound()
    data.command(c.Ping())
    at.bench.run()
    assert data.commands() == [c.Pong()]


def test_contents_like_the_one_before_are_handed_over_together(at: Setting) -> None:
    data = at.bound()
    at.flow.ask(c.Summon, "a")
    [summon] = data.commands()
    assert isinstance(summon, c.Summon)
    data.command(c.Response(summon.sequence, 200))
    alike = [c.Content(n, "a", EMPTY, b"%d" % n) for n in range(1, 8)]
    other = c.Content(8, "a", encode_table({"k": 1}), b"8")
    at.user.takes = 3
    for one in (*alike, other):
        data.command(one)
    at.bench.run()
    assert at.user.commands == [alike[0], other]
    assert at.user.together == alike[1:]
    at.user.takes = at.user.offered = 0
    for one in alike:
        data.command(one)
    at.bench.run()
    assert at.user.commands == [alike[0], other, *alike]
    assert at.user.offered == 1, "a row that is not wanted is not looked at again for each of its contents"


def test_contents_of_what_is_not_summoned_any_more_are_dropped_also_in_a_row(at: Setting) -> None:
    data = at.bound()
    at.user.takes = 10
    for kind in (c.Summon, c.Dismiss):
        at.flow.ask(kind, "a")
        [asked] = data.commands()
        assert isinstance(asked, c.Summon | c.Dismiss)
        data.command(c.Response(asked.sequence, 200))
        data.command(c.Content(1, "a", EMPTY, b""))
        data.command(c.Content(2, "a", EMPTY, b""))
        at.bench.run()
    assert (len(at.user.commands), len(at.user.together), at.flow.dropped) == (1, 1, 2)


def test_what_does_not_fit_into_the_socket_waits_in_order(at: Setting) -> None:
    data = at.bound()
    data.make_room(1)
    at.flow.send(c.Confirm(1, multiple=True))
    at.flow.send(c.Confirm(2, multiple=True))
    contents = [c.Content(n, "a", EMPTY, b"") for n in (1, 2, 3)]
    assert not at.flow.send_contents(contents), "contents do not overtake"
    at.bench.run()
    assert data.commands() == [c.Confirm(1, multiple=True)]
    data.make_room()
    at.bench.run()
    assert data.commands() == [c.Confirm(2, multiple=True)]
    assert at.user.said == ["writable"]
    data.make_room(2)
    assert at.flow.send_contents(contents) == 2
    assert (data.commands(), data.wants_room) == (contents[:2], True)


# --- losses -------------------------------------------------------------------------------------------------


def test_a_lost_connection_is_replaced_at_once_under_the_same_lease(at: Setting) -> None:
    first = at.bound()
    first.down()
    at.bench.run()
    assert first.closed
    assert at.user.said == ["down"]
    second = at.bench.bind()
    assert second is not first
    assert at.user.said[-2:] == ["bound", "drained"]
    assert at.control.said == type(at.control.said)(), "no request was needed"


def test_the_deadline_of_a_lost_connection_does_not_end_its_successor(at: Setting) -> None:
    at.control.answer(LEASE)
    at.bench.run()
    first = at.bench.last("data")
    first.down()
    at.bench.run(0.5)
    second = at.bench.bind()
    at.bench.run(2.0)
    assert (first.closed, second.closed) == (True, False)


def test_messages_before_the_end_of_a_connection_are_taken_in(at: Setting) -> None:
    data = at.bound()
    data.command(c.Confirm(7, multiple=True))
    data.down()
    at.bench.run()
    assert at.user.commands == [c.Confirm(7, multiple=True)]


def test_a_lease_that_the_broker_does_not_know_is_replaced(at: Setting) -> None:
    first = at.bound()
    first.down()
    at.bench.run()
    second = at.bench.last("data")
    [asked] = second.commands()
    assert isinstance(asked, c.Lease)
    second.command(c.Response(asked.sequence, 403))
    at.bench.run()
    assert isinstance(at.control.asked(), w.Reader)
    at.control.answer(w.DataLease(port=7_001, lease="another"))
    at.bench.run()
    third = at.bench.last("data")
    assert (third.endpoint, third.commands()) == ("tcp://broker:7001", [c.Lease(3, "another")])


def test_a_flow_that_the_broker_gave_up_shows_its_lease_again(at: Setting) -> None:
    """After a pause of ours: the Summon is answered with 403, since the lease is not bound there any more."""
    first = at.bound()
    at.flow.ask(c.Summon, "a")
    [summon] = first.commands()
    assert isinstance(summon, c.Summon)
    first.command(c.Response(summon.sequence, 403))
    at.bench.run()
    assert first.closed
    assert at.user.said == ["down"]
    assert at.bench.bind() is not first
    assert "bound" in at.user.said


def test_being_fenced_is_the_end(at: Setting) -> None:
    at.bound().down()
    at.bench.run()
    data = at.bench.last("data")
    [asked] = data.commands()
    assert isinstance(asked, c.Lease)
    data.command(c.Response(asked.sequence, 403))
    at.bench.run()
    at.control.asked()
    at.control.refuse(409, w.FENCED)
    at.bench.run(30.0)
    assert isinstance(at.user.error, Fenced)
    assert at.flow.state is State.OVER
    assert not at.control.said


def test_a_broker_that_does_not_come_back_is_unreachable_after_the_deadline(at: Setting) -> None:
    at.bound().down()
    while at.flow.state is not State.OVER:
        at.bench.run(0.05)
        for link in at.bench.network.links:
            if not link.closed:
                link.down()
    assert isinstance(at.user.error, Unreachable)
    assert at.bench.now - 1_000.0 == pytest.approx(10.0, abs=2.5)


def test_after_two_failures_the_broker_is_asked_for_another_lease(at: Setting) -> None:
    at.bound().down()
    at.bench.run()
    made = at.bench.count("data")
    at.bench.last("data").down()
    at.bench.run(0.1)
    assert at.bench.count("data") == made + 1
    at.bench.last("data").down()
    at.bench.run(0.2)
    assert isinstance(at.control.asked(), w.Reader)


def test_a_data_socket_that_never_answers_is_unreachable_though_the_control_socket_does(at: Setting) -> None:
    at.control.answer(LEASE)
    while at.flow.state is not State.OVER and at.bench.now < 1_040.0:
        at.bench.run(0.5)
        control = at.bench.last("request")
        if control.said:
            control.asked()
            control.answer(LEASE)
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
def test_the_interval_is_ours_to_say_then_the_brokers_then_the_usual_one(
    ours: float | None, the_brokers: float | None, interval: float
) -> None:
    at = Setting(Settings(ENDPOINT, heartbeat=ours))
    data = at.bound(w.DataLease(port=7_000, lease="lease", heartbeat=the_brokers))
    if not interval:
        at.bench.run(60.0)
        assert (data.commands(), data.closed) == ([], False)
        return
    at.bench.run(interval * 0.9)
    assert data.commands() == []
    at.bench.run(interval * 0.4)
    assert data.commands() == [c.Ping()]


@pytest.mark.requirement("MTL-07", "MTL-99", "MTL-102", "MTL-104")
def test_a_silent_broker_is_pinged_and_given_up(at: Setting) -> None:
    data = at.bound()
    at.bench.run(6.5)
    assert data.commands() == [c.Ping()]
    data.command(c.Pong())
    at.bench.run(3.0)
    assert (data.commands(), data.closed) == ([], False)
    at.bench.run(20.0)
    assert set(map(type, data.commands())) == {c.Ping}
    assert data.closed
    assert "down" in at.user.said


def test_sent_contents_take_the_place_of_a_ping(at: Setting) -> None:
    data = at.bound()
    at.bench.run(4.0)
    data.command(c.Pong())
    assert at.flow.send_contents([c.Content(1, "a", EMPTY, b"x")]) == 1
    assert isinstance(data.commands()[0], c.Content)
    at.bench.run(2.0)
    assert data.commands() == []


def test_an_idle_flow_is_looked_at_once_per_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look is a round of the IO thread, and a query may stand still for days."""
    looks = []
    check = Heartbeat.check

    def looked(pulse: Heartbeat, now: float) -> HeartbeatVerdict:
        looks.append(now)
        return check(pulse, now)

    monkeypatch.setattr(Heartbeat, "check", looked)
    at = Setting()
    data = at.bound()
    for _ in range(10):
        at.bench.run(LEASE.heartbeat or 0.0)
        data.command(c.Pong())
    pings = data.commands()
    assert pings == [c.Ping()] * len(pings)
    assert 9 <= len(pings) <= len(looks) <= 12  # a timer may be called a little early


def test_a_refusal_may_be_repaired_by_asking_again_or_not() -> None:
    at = Setting()
    at.user.again = 1
    at.control.refuse(409, w.DATA_LOSS, resource="a", first=1, end=2)
    at.bench.run()
    assert isinstance(at.control.asked(), w.Reader)
    at.control.refuse(404, w.UNKNOWN_RESOURCE)
    at.bench.run()
    assert isinstance(at.user.error, Refused)


def test_a_session_that_has_its_lease_already_is_left_behind_once(at: Setting) -> None:
    at.control.refuse(403, w.ALREADY_LEASED)
    at.bench.run()
    at.control = at.bench.ready()
    assert isinstance(at.control.asked(), w.Reader)
    at.control.refuse(403, w.ALREADY_LEASED)
    at.bench.run()
    assert isinstance(at.user.error, Refused)


def test_a_lease_that_is_useless_is_the_end(at: Setting) -> None:
    at.user.useless = Closed("no echo")
    at.control.answer(LEASE)
    at.bench.run()
    assert at.user.said == [at.user.useless]
    assert at.bench.count("data") == 0


# --- pings that somebody waits for --------------------------------------------------------------------------


def test_a_pong_is_told_to_whoever_asked_for_it(at: Setting) -> None:
    data = at.bound()
    told: list[int] = []
    for number in range(3):
        at.flow.ping(lambda _, number=number: told.append(number))  # type: ignore[misc]
    assert data.commands() == [c.Ping()] * 3
    data.command(c.Pong())
    data.command(c.Pong())
    at.bench.run()
    assert told == [0, 1]


def test_a_flow_that_the_broker_had_given_up_begins_again(at: Setting) -> None:
    """This process was stopped, say: the connection stands, and the broker dropped what was sent since."""
    data = at.bound()
    told: list[int] = []
    at.flow.ping(lambda _: told.append(1))
    at.bench.run(1.5)
    probe = data.commands()[-1]
    assert isinstance(probe, c.Lease)
    data.command(c.Response(probe.sequence, 201))
    at.bench.run()
    assert ("down" in at.user.said, data.closed) == (True, True)
    again = at.bench.last("data")
    [lease] = [x for x in again.commands() if isinstance(x, c.Lease)]
    again.command(c.Response(lease.sequence, 201))
    at.bench.run()
    assert at.user.said.count("bound") == 1
    assert again.commands() == [c.Ping()]
    again.command(c.Pong())
    at.bench.run()
    assert told == [1]


def test_a_lease_that_has_ended_is_replaced_without_waiting_for_a_ping(at: Setting) -> None:
    data = at.bound()
    data.command(c.Response(LEASE_ENDED, FORBIDDEN))
    at.bench.run()
    again = at.bench.last("data")
    assert again is not data
    [lease] = again.commands()
    assert isinstance(lease, c.Lease)
    again.command(c.Response(lease.sequence, FORBIDDEN))
    at.bench.run()
    assert isinstance(at.control.asked(), w.Reader)


def test_a_lease_that_still_holds_changes_nothing(at: Setting) -> None:
    data = at.bound()
    at.flow.ping(lambda _: None)
    at.bench.run(1.5)
    probe = data.commands()[-1]
    assert isinstance(probe, c.Lease)
    data.command(c.Response(probe.sequence, 200))
    at.bench.run()
    assert ("down" in at.user.said, data.closed) == (False, False)


def test_a_pong_tells_where_the_group_is(at: Setting) -> None:
    data = at.bound()
    told: list[int | None] = []
    for _ in range(2):
        at.flow.ping(told.append)
    data.command(c.Pong(7))
    data.command(c.Pong())
    at.bench.run()
    assert told == [7, None]


def test_a_ping_is_repeated_on_the_next_connection(at: Setting) -> None:
    data = at.bound()
    told: list[int] = []
    at.flow.ping(lambda _: told.append(1))
    data.down()
    at.bench.run()
    at.flow.ping(lambda _: told.append(2))
    second = at.bench.bind()
    assert second.commands() == [c.Ping(), c.Ping()]
    second.command(c.Pong())
    second.command(c.Pong())
    at.bench.run()
    assert told == [1, 2]


def test_a_ping_without_a_pong_makes_the_flow_show_its_lease_again(at: Setting) -> None:
    data = at.bound()
    at.flow.ping(lambda _: None)
    data.commands()
    at.bench.run(1.1)
    [lease] = data.commands()
    assert isinstance(lease, c.Lease)
    data.command(c.Response(lease.sequence, 403))
    at.bench.run()
    assert isinstance(at.control.asked(), w.Reader), "the reply to this one says that we are fenced"
    assert at.user.said[-1] == "down"


# --- the end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_order", [False, True])
def test_closing_ends_the_lease_and_the_connection(at: Setting, in_order: bool) -> None:
    """In this order for a consumer: a queue would count what is with it as delivered."""
    data = at.bound()
    outcomes: list[Outcome] = []
    at.flow.close(outcomes.append, in_order=in_order)
    at.bench.run()
    before = data.closed
    close = at.control.asked()
    assert isinstance(close, w.LeaseClose)
    at.control.answer(w.LeaseClosed())
    at.bench.run()
    assert (before, data.closed) == (not in_order, True)
    assert outcomes == [w.LeaseClosed()]
    at.flow.close(outcomes.append, in_order=in_order)
    assert isinstance(outcomes[1], Closed)


def test_closing_between_two_leases_says_that_the_lease_is_gone(at: Setting) -> None:
    """The broker restarted when everything was confirmed: that is no mistake of the caller's."""
    at.bound().down()
    at.bench.run()
    data = at.bench.last("data")
    [asked] = data.commands()
    assert isinstance(asked, c.Lease)
    data.command(c.Response(asked.sequence, 403))
    at.bench.run()
    assert isinstance(at.control.asked(), w.Reader)
    outcomes: list[Outcome] = []
    at.flow.close(outcomes.append)
    [outcome] = outcomes
    assert isinstance(outcome, Refused)
    assert outcome.reason == w.UNKNOWN_LEASE


def test_a_lease_that_is_granted_after_closing_is_not_used(at: Setting) -> None:
    outcomes: list[Outcome] = []
    at.flow.close(outcomes.append)
    at.control.answer(LEASE)
    at.bench.run()
    assert isinstance(outcomes[0], Closed)
    assert (at.bench.count("data"), at.user.said) == (0, [])


def test_a_restart_closes_the_lease_and_asks_for_another(at: Setting) -> None:
    data = at.bound()
    at.flow.restart()
    at.bench.run()
    assert data.closed
    assert isinstance(at.control.asked(), w.LeaseClose)
    at.control.answer(w.LeaseClosed())
    at.bench.run()
    assert isinstance(at.control.asked(), w.Reader)
    assert at.user.said == ["down"]


def test_the_end_of_the_loop_is_the_end_of_the_flow(at: Setting) -> None:
    at.bound()
    for member in list(at.bench.loop.members):
        member.abandoned()
    assert isinstance(at.user.error, Closed)
    assert not at.bench.loop.members
