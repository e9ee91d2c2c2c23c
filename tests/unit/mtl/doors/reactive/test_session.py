from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.doors.reactive import codec
from mtl.doors.reactive.session import (
    ConnectionEnded,
    Event,
    HelloArrived,
    ReactiveRole,
    ReactiveSession,
    ReactiveState,
)
from mtl.doors.reactive.subscribing import Elements
from mtl.errors import Refused
from tests.unit.mtl.doors.reactive.test_codec import FREE, encoded


def receive(session: ReactiveSession, *messages: codec.Message) -> list[Event]:
    return list(session.received(encoded(list(messages))))


def sent(session: ReactiveSession) -> list[codec.Message]:
    return list(codec.ReactiveDecoder().feed(session.pop_output()))


def opened(role: ReactiveRole = ReactiveRole.SERVER) -> ReactiveSession:
    session = ReactiveSession(role)
    receive(session, codec.ClientHello() if role is ReactiveRole.SERVER else codec.ServerHello())
    session.pop_output()
    assert session.state is ReactiveState.OPEN
    return session


@pytest.mark.requirement("RS-05", "RS-06", "RS-07", "RS-08", "RS-14", "RS-24")
def test_two_sessions_exchange_elements() -> None:
    client, server = ReactiveSession(ReactiveRole.CLIENT), ReactiveSession(ReactiveRole.SERVER)
    subscriber = client.subscribing.subscribe("a", 2)  # without waiting for the server's hello
    there = list(server.received(client.pop_output()))
    assert there == [HelloArrived(()), codec.Subscribe("a", subscriber, 2)]
    server.publishing.accept(subscriber, 2)
    server.publishing.publish_packed(subscriber, [b"ab", b"cd"])
    back = server.subscribing.subscribe("b", 1)  # either may act as either, and the Ids are apart
    assert back == subscriber
    here = list(client.received(server.pop_output()))
    elements = Elements(subscriber, (b"ab", b"cd"))
    assert here == [
        HelloArrived(()),
        codec.Subscribed(subscriber, 2),
        elements,
        codec.Subscribe("b", back, 1),
    ]
    client.publishing.accept(back)
    list(client.publishing.publish(back, b"e"))
    client.subscribing.cancel(subscriber)
    assert list(server.received(client.pop_output())) == [
        codec.Subscribed(back),
        Elements(back, (b"e",)),
        codec.Cancel(subscriber),
    ]


@pytest.mark.requirement("RS-09", "RS-10", "RS-15", "RS-16")
@pytest.mark.parametrize("role", ReactiveRole)
def test_another_version_gets_a_goodbye(role: ReactiveRole) -> None:
    session = ReactiveSession(role)
    session.pop_output()
    (left,) = receive(session, codec.ClientHello(1) if role is ReactiveRole.SERVER else codec.ServerHello(1))
    assert isinstance(left, ConnectionEnded)
    assert "version 1" in left.reason
    assert session.state is ReactiveState.CLOSED
    assert sent(session) == [codec.Goodbye(left.reason)]


@pytest.mark.requirement("RS-11", "RS-12", "RS-13")
def test_extensions_of_the_peer_are_reported_but_not_used() -> None:
    session = ReactiveSession(ReactiveRole.SERVER)
    assert sent(session) == [codec.ServerHello(0, ())]
    assert receive(session, codec.ClientHello(0, (1, 2))) == [HelloArrived((1, 2))]
    (left,) = session.received(b"\x40")  # a type that an extension might define
    assert isinstance(left, ConnectionEnded)
    assert "type 64" in left.reason


WRONG: list[tuple[ReactiveState, codec.Message]] = [
    (ReactiveState.OPENING, codec.Subscribe("a", 1)),
    (ReactiveState.OPENING, codec.ServerHello()),
    (ReactiveState.OPENING, codec.OnNext(1, b"x")),
    (ReactiveState.OPENING, codec.GoodbyeAck()),
    (ReactiveState.OPEN, codec.ClientHello()),
    (ReactiveState.OPEN, codec.ServerHello()),
    (ReactiveState.OPEN, codec.GoodbyeAck()),
]


@pytest.mark.parametrize(("state", "message"), WRONG, ids=str)
def test_messages_out_of_place_end_the_connection(state: ReactiveState, message: codec.Message) -> None:
    session = ReactiveSession(ReactiveRole.SERVER) if state is ReactiveState.OPENING else opened()
    session.pop_output()
    events = receive(session, message, codec.Subscribe("a", 1))
    assert len(events) == 1
    assert isinstance(events[0], ConnectionEnded)
    assert sent(session) == [codec.Goodbye(events[0].reason)]
    assert list(session.received(b"\x04")) == []


@pytest.mark.requirement("RS-39", "RS-40")
@pytest.mark.parametrize("role", ReactiveRole)
def test_a_goodbye_is_answered_once_and_ends_every_stream(role: ReactiveRole) -> None:
    session = opened(role)
    receive(session, codec.Subscribe("a", 1, 5))
    session.publishing.accept(1)
    session.subscribing.subscribe("b", 5)
    session.pop_output()
    assert receive(session, codec.Goodbye("enough"), codec.Goodbye("again")) == [ConnectionEnded("enough")]
    assert sent(session) == [codec.Goodbye("")]
    assert session.publishing.demand(1) == 0
    session.send_goodbye("me too")
    session.publishing.complete(1)
    session.subscribing.cancel(0)
    assert sent(session) == []
    with pytest.raises(Refused, match="over"):
        session.subscribing.subscribe("c")


@pytest.mark.requirement("RS-39", "RS-40")
@pytest.mark.parametrize("answer", [codec.Goodbye("bye"), codec.GoodbyeAck()], ids=str)
def test_a_sent_goodbye_waits_for_the_answer(answer: codec.Message) -> None:
    session = opened()
    receive(session, codec.Subscribe("a", 1, 5))
    session.send_goodbye("enough")
    session.send_goodbye("enough")
    assert sent(session) == [codec.Goodbye("enough")]
    assert receive(session, codec.RequestMore(1, 1), codec.OnNext(7, b"x"), codec.Subscribe("b", 2)) == []
    (left,) = receive(session, answer)
    assert isinstance(left, ConnectionEnded)
    assert sent(session) == []  # crossing goodbyes answer each other
    assert session.state is ReactiveState.CLOSED


def test_a_goodbye_instead_of_a_hello_ends_the_connection() -> None:
    session = ReactiveSession(ReactiveRole.CLIENT)
    session.pop_output()
    assert receive(session, codec.Goodbye("full")) == [ConnectionEnded("full")]
    assert sent(session) == [codec.Goodbye()]


@given(st.lists(FREE | st.just(codec.ClientHello()), max_size=12), st.booleans())
def test_any_messages_are_handled(messages: list[codec.Message], hello: bool) -> None:
    session = opened() if hello else ReactiveSession(ReactiveRole.SERVER)
    events = receive(session, *messages)
    assert [isinstance(event, ConnectionEnded) for event in events].count(True) <= 1
    assert (session.state is ReactiveState.CLOSED) == (
        bool(events) and isinstance(events[-1], ConnectionEnded)
    )
    session.send_goodbye("")
    assert isinstance(sent(session)[-1], codec.Goodbye)
