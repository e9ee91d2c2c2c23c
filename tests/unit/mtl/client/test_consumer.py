"""Contents of a queue in the application. Against a real broker: tests/integration/test_queue.py."""

from __future__ import annotations

import pytest

from mtl.client.consumer import Consumer
from mtl.errors import Closed, Refused
from mtl.wire import commands as c
from tests.unit.mtl.client.test_deliveries import Setting


class Consuming(Setting):
    """A consumer whose IO thread is driven by the test."""

    def __init__(self) -> None:
        super().__init__()
        self.data = self.summoned()
        self.consumer = Consumer(self.bench.loop, self.bench.settings, self.deliveries, lambda: None)


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
    assert at.data.commands() == []
    assert at.sent(at.data) == [c.Reject(3, False, False, "too large"), c.Confirm(2, True)]
    fourth = at.consumer.next()
    assert fourth is not None
    fourth.reject(recycle=True)
    fourth.confirm()
    assert at.sent(at.data) == [c.Reject(4, False, True)]


def test_next_returns_none_after_its_timeout() -> None:
    assert Consuming().consumer.next(0.01) is None


def test_an_error_is_raised_after_the_delivered_contents() -> None:
    at = Consuming()
    at.deliver(at.data, 1)
    at.deliveries.failed(Refused(404, "gone"))
    assert at.consumer.next() is not None
    with pytest.raises(Refused, match="gone"):
        at.consumer.next()


def test_summon_and_dismiss_are_sent() -> None:
    at = Consuming()
    at.consumer.summon("c")
    at.consumer.dismiss("b")
    assert [type(x) for x in at.sent(at.data)] == [c.Summon, c.Dismiss]


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
