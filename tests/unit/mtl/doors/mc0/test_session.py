from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.doors.mc0.codec import Mc0Message, Verb
from mtl.doors.mc0.session import SILENCE_LIMIT, HeartbeatAction, Leave, Mc0Session, Mc0State, Put, Sub, Unsub
from mtl.errors import Refused

GOOD = {
    Verb.NOOP: Mc0Message(Verb.NOOP),
    Verb.CONNECT: Mc0Message(Verb.CONNECT, {"VERSION": "0.1", "TTL": "1000"}),
    Verb.DISCONNECT: Mc0Message(Verb.DISCONNECT),
    Verb.SUB: Mc0Message(Verb.SUB, {}, (b"a", b"b")),
    Verb.UNSUB: Mc0Message(Verb.UNSUB, {}, (b"a",)),
    Verb.PUT: Mc0Message(Verb.PUT, {"TOPIC": "t", "X-k": "v", "OTHER": "reserved"}, (b"x", b"y")),
    Verb.MESSAGE: Mc0Message(Verb.MESSAGE, {"TOPIC": "t"}, (b"x",)),
    Verb.OK: Mc0Message(Verb.OK, {"ID": "1"}),
    Verb.ERROR: Mc0Message(Verb.ERROR, {"MESSAGE": "no"}),
}


ASKED = {
    Verb.SUB: Sub(("a", "b")),
    Verb.UNSUB: Unsub(("a",)),
    Verb.PUT: Put("t", (("k", "v"),), (b"x", b"y")),
    Verb.DISCONNECT: Leave(),
}
AFTER = {Verb.CONNECT: Mc0State.CONNECTED, Verb.DISCONNECT: Mc0State.GONE}


@pytest.mark.requirement("MC0-06", "MC0-12", "MC0-19", "MC0-20", "MC0-21", "MC0-22")
@pytest.mark.parametrize("state", [Mc0State.IMPLICIT, Mc0State.CONNECTED])
@pytest.mark.parametrize("verb", [verb for verb in GOOD if verb is not Verb.MESSAGE])
def test_verbs_are_parsed_to_requests(state: Mc0State, verb: Verb) -> None:
    session = Mc0Session(0.0, state)
    assert session.received(GOOD[verb], 1.0) == ASKED.get(verb)
    assert session.state is AFTER.get(verb, state)


def test_a_message_from_a_client_is_refused() -> None:
    session = Mc0Session(0.0)
    with pytest.raises(Refused, match="not a message of a client"):
        session.received(GOOD[Verb.MESSAGE], 1.0)


@pytest.mark.requirement("MC0-14")
@pytest.mark.parametrize("names", [("VERSION", "TTL", "X-k"), ("X-k", "TTL", "VERSION")])
def test_headers_of_connect_have_any_order(names: tuple[str, ...]) -> None:
    headers = {"VERSION": "0.3", "TTL": "1500", "X-k": "v"}
    session = Mc0Session(0.0)
    session.received(Mc0Message(Verb.CONNECT, {name: headers[name] for name in names}), 1.0)
    assert (session.version, session.ttl) == ("0.3", 1.5)


@pytest.mark.requirement("MC0-12")
def test_a_noop_is_only_a_sign_of_life() -> None:
    session = Mc0Session(0.0)
    session.received(GOOD[Verb.CONNECT], 10.0)
    assert session.received(GOOD[Verb.NOOP], 11.0) is None
    assert (session.state, session.ttl, session.version) == (Mc0State.CONNECTED, 1.0, "0.1")
    session.sent(12.0)
    assert session.check(12.04) is HeartbeatAction.NOTHING
    assert session.check(12.06) is HeartbeatAction.ABSENT


@pytest.mark.requirement("MC0-16", "MC0-17", "MC0-18", "MC0-28")
def test_a_ttl_sets_the_times_of_noop_and_absence() -> None:
    session = Mc0Session(0.0)
    assert session.due is None
    session.received(GOOD[Verb.CONNECT], 10.0)
    session.sent(10.0)
    assert session.due == pytest.approx(10.95)
    assert session.check(10.9) is HeartbeatAction.NOTHING
    assert session.check(10.96) is HeartbeatAction.NOOP
    session.sent(10.96)
    session.received(GOOD[Verb.NOOP], 11.0)
    assert session.check(11.1) is HeartbeatAction.NOTHING
    session.sent(12.0)
    assert session.check(12.06) is HeartbeatAction.ABSENT
    assert session.due is None
    assert session.check(99.0) is HeartbeatAction.NOTHING


@pytest.mark.requirement("MC0-18")
def test_an_absent_client_is_refused_once() -> None:
    session = Mc0Session(0.0)
    session.received(GOOD[Verb.CONNECT], 0.0)
    assert session.check(2.0) is HeartbeatAction.ABSENT
    with pytest.raises(Refused, match="SUB again"):
        session.received(GOOD[Verb.PUT], 3.0)
    assert isinstance(session.received(GOOD[Verb.PUT], 3.0), Put)
    assert session.due is None
    session.received(GOOD[Verb.CONNECT], 4.0)
    assert session.check(6.0) is HeartbeatAction.ABSENT
    session.received(GOOD[Verb.CONNECT], 7.0)  # whoever connects anew is not told
    assert session.state is Mc0State.CONNECTED


def test_a_client_that_reads_nothing_becomes_absent() -> None:
    session = Mc0Session(0.0)
    session.mark_silent()
    with pytest.raises(Refused, match="SUB again"):
        session.received(GOOD[Verb.NOOP], 3.0)
    assert session.state is Mc0State.IMPLICIT


@pytest.mark.requirement("MC0-17")
def test_a_noop_is_due_exactly_at_the_due_time() -> None:
    session = Mc0Session(0.0)
    session.received(GOOD[Verb.CONNECT], 0.0)
    assert session.due is not None
    assert session.check(session.due) is HeartbeatAction.NOOP


@pytest.mark.requirement("MC0-17", "MC0-18")
def test_absence_is_due_exactly_at_the_due_time() -> None:
    session = Mc0Session(0.0)
    session.received(GOOD[Verb.CONNECT], 0.0)
    session.sent(1.0)
    assert session.due == SILENCE_LIMIT
    assert session.check(session.due) is HeartbeatAction.ABSENT


@pytest.mark.requirement("MC0-15")
def test_a_second_connect_replaces_the_first() -> None:
    session = Mc0Session(0.0)
    session.received(GOOD[Verb.CONNECT], 0.0)
    assert (session.ttl, session.version) == (1.0, "0.1")
    session.received(Mc0Message(Verb.CONNECT, {"VERSION": "0.2"}), 0.0)
    assert (session.ttl, session.version) == (None, "0.2")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (Mc0Message(Verb.CONNECT, {"VERSION": "1.0"}), "bad-version"),
        (Mc0Message(Verb.CONNECT, {"TTL": "0"}), "bad-ttl"),
        (Mc0Message(Verb.CONNECT, {"TTL": "-1"}), "bad-ttl"),
        (Mc0Message(Verb.CONNECT, {"TTL": "1.5"}), "bad-ttl"),
        (Mc0Message(Verb.CONNECT, {"TTL": "9" * 5000}), "bad-ttl"),
        (Mc0Message(Verb.CONNECT, {"TTL": "000000000001" + "9" * 400}), "bad-ttl"),
        (Mc0Message(Verb.CONNECT, {"TTL": "١٢"}), "bad-ttl"),
        (Mc0Message(Verb.PUT, {}, (b"x",)), "no-topic"),
        (Mc0Message(Verb.SUB), "no-topic"),
        (Mc0Message(Verb.SUB, {}, (b"",)), "no-topic"),
        (Mc0Message(Verb.SUB, {}, (b"\xff",)), "bad-topic"),
    ],
    ids=str,
)
def test_a_refused_message_changes_no_state(message: Mc0Message, reason: str) -> None:
    session = Mc0Session(0.0)
    with pytest.raises(Refused) as refused:
        session.received(message, 0.0)
    assert refused.value.reason == reason
    assert (session.state, session.ttl) == (Mc0State.IMPLICIT, None)


@given(st.lists(st.tuples(st.sampled_from(list(GOOD.values())), st.floats(0, 3)), max_size=30))
def test_any_sequence_of_messages_is_handled(steps: list[tuple[Mc0Message, float]]) -> None:
    session, now = Mc0Session(0.0), 0.0
    for message, later in steps:
        now += later
        due = session.due
        verdict = session.check(now)
        assert verdict is HeartbeatAction.NOTHING or (due is not None and due <= now)
        try:
            session.received(message, now)
        except Refused:
            pass
