"""Contents of a queue in the application. Against a real broker: tests/integration/test_queue.py."""

from __future__ import annotations

import msgspec
import pytest

from mtl.client.consumer import Consumer
from mtl.errors import Closed, Refused
from mtl.wire import commands
from mtl.wire.fields import EMPTY
from tests.unit.mtl.client.test_consumer_part import GRANTED, Setting

LEASE = msgspec.structs.replace(GRANTED, binding=True, heartbeat=5.0)


class Consuming(Setting):
    """A consumer whose IO thread is driven by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.data = self.bench.lease(self.control, LEASE)
        self.respond(self.data)
        self.consumer = Consumer(self.bench.loop, self.bench.settings, self.part, lambda: None)


def test_contents_are_returned_singly_and_their_answers_combined() -> None:
    at = Consuming()
    at.deliver(at.data, 1, 2, 3, 4)
    contents = iter(at.consumer)
    first, second, third = next(contents), next(contents), next(contents)
    assert (first.resource, first.sequence, first.body, first.redelivered) == ("a", 101, b"x", False)
    assert at.consumer.queue == "q"
    first.confirm()
    second.confirm()
    third.reject(reason="too large")
    assert at.data.sent_commands() == []
    assert at.sent(at.data) == [commands.Reject(3, False, False, "too large"), commands.Confirm(2, True)]
    fourth = at.consumer.next()
    assert fourth is not None
    fourth.reject(recycle=True)
    fourth.confirm()
    assert at.sent(at.data) == [commands.Reject(4, False, True)]


def test_next_returns_none_after_its_timeout() -> None:
    assert Consuming().consumer.next(0.01) is None


def test_an_error_is_raised_after_the_delivered_contents() -> None:
    at = Consuming()
    at.deliver(at.data, 1)
    at.part.failed(Refused(404, "gone"))
    assert at.consumer.next() is not None
    with pytest.raises(Refused, match="gone"):
        at.consumer.next()


def test_summon_and_dismiss_are_sent() -> None:
    at = Consuming()
    at.consumer.summon("c")
    at.consumer.dismiss("b")
    assert [type(x) for x in at.sent(at.data)] == [commands.Summon, commands.Dismiss]


def test_a_closed_consumer_refuses_answers() -> None:
    at = Consuming()
    at.deliver(at.data, 1)
    content = at.consumer.next()
    assert content is not None
    at.consumer._open = False
    with pytest.raises(Closed):
        content.confirm()
    with pytest.raises(Closed):
        at.consumer.next()
    at.consumer.close()


class Stopped(Consuming):
    """A consumer that has two contents, and then stands still for longer than the broker waits."""

    def __init__(self) -> None:
        super().__init__()
        self.deliver(self.data, 1, 2)
        self.bench.now += 20.0

    def proof(self) -> commands.Lease:
        """The Lease that the consumer presents again."""
        [lease] = [command for command in self.sent(self.data) if isinstance(command, commands.Lease)]
        return lease


def test_after_a_standstill_contents_wait_until_the_broker_has_kept_the_flow() -> None:
    at = Stopped()
    assert at.consumer.next(0.0) is None
    at.data.command(commands.Content(3, "a", EMPTY, b"sent before"))
    lease = at.proof()
    assert at.consumer.next(0.0) is None
    at.data.command(commands.Response(lease.sequence, 200))
    at.bench.run()
    bodies = [content.body for _ in range(3) if (content := at.consumer.next(0.0)) is not None]
    assert bodies == [b"x", b"x", b"sent before"]
    assert at.consumer.next(0.0) is None


def test_contents_that_another_consumer_may_have_got_are_not_handed_out() -> None:
    at = Stopped()
    assert at.consumer.next(0.0) is None
    at.data.command(commands.Response(at.proof().sequence, 201))  # the broker had given up the flow
    at.bench.run()
    assert at.consumer.next(0.0) is None
    again = at.bench.bind()
    at.respond(again)
    at.deliver(again, 3)
    content = at.consumer.next(0.0)
    assert content is not None
    assert content.sequence == 103


def test_an_answer_after_a_standstill_asks_the_broker_as_well() -> None:
    at = Consuming()
    at.bench.now += 1.0
    at.deliver(at.data, 1, 2)
    content = at.consumer.next()
    assert content is not None
    at.bench.now += 20.0
    content.confirm()
    kinds = {type(command) for command in at.sent(at.data)}
    assert kinds >= {commands.Confirm, commands.Lease}
    assert at.consumer.next(0.0) is None
