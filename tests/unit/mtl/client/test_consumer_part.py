from __future__ import annotations

from dataclasses import replace

import pytest

from mtl.client.consumer_part import ConsumerOptions, ConsumerPart
from mtl.errors import Closed, NotGranted, Refused
from mtl.protocol.consuming import ConsumerAnswer
from mtl.protocol.states import FORBIDDEN, LEASE_ENDED
from mtl.wire import commands, control
from mtl.wire.fields import EMPTY, encode_table
from tests.support.memory_network import Bench, MemoryLink

OPTIONS = ConsumerOptions(("a", "b"), "q", "latest", 10, 1_000)
GRANTED = control.DataLease(port=1, lease="l", group="q", window=control.Window(contents=10, bytes=1_000))


class Setting:
    def __init__(self, **options: object) -> None:
        self.bench = Bench()
        options_ = replace(OPTIONS, **options)  # type: ignore[arg-type]
        self.part = ConsumerPart(self.bench.loop, self.bench.channel, options_)
        self.part.flow.start()
        self.control = self.bench.ready()
        self.request = self.bench.last("request").asked()

    def summoned(self, *, code: int = 200) -> MemoryLink:
        data = self.bench.lease(self.control, GRANTED)
        self.respond(data, code=code)
        return data

    def respond(self, data: MemoryLink, *, code: int = 200) -> list[str]:
        summons = [x for x in data.sent_commands() if isinstance(x, commands.Summon)]
        for summon in summons:
            data.command(commands.Response(summon.sequence, code))
        self.bench.run()
        return [x.resource for x in summons]

    def deliver(self, data: MemoryLink, *numbers: int) -> None:
        for number in numbers:
            data.command(commands.Content(number, "a", encode_table({commands.SEQUENCE: number + 100}), b"x"))
        self.bench.run()

    def sent(self, data: MemoryLink) -> list[commands.Command]:
        self.bench.run()
        return data.sent_commands()


def test_the_lease_request_of_a_consumer() -> None:
    at = Setting()
    assert at.request == control.ConnectionReader(
        session="token",
        request_id=at.part.flow.id,
        binding=True,
        resources=["a", "b"],
        confirm="full",
        from_="latest",
        window=control.Window(contents=10, bytes=1_000),
        group="q",
    )


def test_a_server_without_queues_is_an_error() -> None:
    at = Setting()
    at.control.answer(replace_group(None))
    at.bench.run()
    assert isinstance(at.part.error, NotGranted)


def replace_group(group: str | None) -> control.DataLease:
    return control.DataLease(port=1, lease="l", group=group)


@pytest.mark.requirement("MTL-67", "MTL-89", "MTL-94")
def test_resources_are_summoned_and_contents_answered() -> None:
    at = Setting()
    data = at.bench.lease(at.control, GRANTED)
    assert at.respond(data) == ["a", "b"]
    at.deliver(data, 1, 2, 3)
    hands = [hand for hand, _ in at.part.queue]
    assert [x.position for x in hands] == [101, 102, 103]
    at.part.answers += [(hands[0], ConsumerAnswer.CONFIRM, ""), (hands[2], ConsumerAnswer.RECYCLE, "")]
    at.part.answer()
    assert at.sent(data) == [commands.Reject(3, False, True), commands.Confirm(1, True)]


def test_contents_of_a_server_of_rfc_11_only_are_handled_one_by_one() -> None:
    at = Setting(extended=False, queue=None, start=None)
    data = at.summoned()
    for number in (1, 2, 3):  # without properties: a reader handles such contents together
        data.command(commands.Content(number, "a", EMPTY, b"x"))
    at.bench.run()
    hands = [hand for hand, _ in at.part.queue]
    assert [hand.position for hand in hands] == [1, 2, 3]
    at.part.answers += [(hand, ConsumerAnswer.CONFIRM, "") for hand in hands[1:]]
    at.part.answer()
    assert at.sent(data) == [commands.Confirm(2, False), commands.Confirm(3, False)]


def test_after_a_loss_the_lease_is_presented_again_and_old_answers_are_dropped() -> None:
    at = Setting()
    data = at.summoned()
    at.deliver(data, 1, 2)
    hands = [hand for hand, _ in at.part.queue]
    at.part.queue.popleft()
    data.down()
    at.bench.run()
    assert not at.part.queue
    again = at.bench.bind()
    assert at.respond(again) == ["a", "b"]
    at.part.answers.append((hands[0], ConsumerAnswer.CONFIRM, ""))
    at.part.answer()
    assert at.sent(again) == []
    at.deliver(again, 3)
    assert [hand.number for hand, _ in at.part.queue] == [3]


def test_resources_are_summoned_and_dismissed_later() -> None:
    at = Setting(resources=())
    data = at.summoned()
    at.part.summon("later")
    at.part.summon("later")
    assert at.respond(data) == ["later"]
    at.part.dismiss("later")
    at.part.dismiss("later")
    assert [type(x) for x in at.sent(data)] == [commands.Dismiss]


@pytest.mark.requirement("MTL-71")
def test_a_refused_summon_is_an_error() -> None:
    at = Setting()
    at.summoned(code=400)
    assert isinstance(at.part.error, Refused)
    assert "'a'" in str(at.part.error)


def test_close_sends_the_last_answers_and_waits_for_the_pong() -> None:
    at = Setting()
    data = at.summoned()
    at.deliver(data, 1)
    at.part.answers.append((at.part.queue[0][0], ConsumerAnswer.CONFIRM, ""))
    at.part.close(lambda _: None, within=1.0)
    assert at.sent(data) == [commands.Confirm(1, True), commands.Ping()]
    data.command(commands.Pong())
    at.bench.run()
    assert at.control.asked() == control.LeaseClose(session="token", lease="l")
    assert isinstance(at.part.error, Closed)


def test_close_without_a_connection_does_not_wait() -> None:
    at = Setting()
    at.part.close(lambda _: None, within=1.0)
    at.bench.run()
    assert isinstance(at.part.error, Closed)


@pytest.mark.requirement("MTL-67", "MTL-73")
def test_a_dismiss_waits_for_the_answer_to_its_summon() -> None:
    at = Setting(resources=())
    data = at.summoned()
    at.part.summon("c")
    at.part.dismiss("c")  # its Summon is not answered yet: a Dismiss has no place
    (summon,) = at.sent(data)
    assert isinstance(summon, commands.Summon)
    data.command(commands.Response(summon.sequence, 200))
    (dismiss,) = at.sent(data)
    assert isinstance(dismiss, commands.Dismiss)
    at.part.summon("c")
    assert not at.sent(data)
    data.command(commands.Response(dismiss.sequence, 200))
    assert [type(x) for x in at.sent(data)] == [commands.Summon]


def test_a_refused_summon_of_a_dismissed_resource_is_ignored() -> None:
    at = Setting(resources=())
    data = at.summoned()
    at.part.summon("c")
    at.part.dismiss("c")
    at.respond(data, code=400)
    assert at.part.error is None


def content(number: int) -> commands.Content:
    return commands.Content(number, "a", encode_table({commands.SEQUENCE: number + 100}), b"x")


@pytest.mark.parametrize("options", [{"confirm": "none"}, {"extended": False, "queue": None, "start": None}])
def test_contents_without_another_delivery_survive_the_end_of_their_flow(options: dict[str, object]) -> None:
    at = Setting(**options)
    data = at.summoned()
    at.deliver(data, 1)
    data.command(content(2))
    data.command(commands.Response(LEASE_ENDED, FORBIDDEN))
    at.bench.run()
    assert [hand.number for hand, _ in at.part.queue] == [1, 2]


def test_contents_come_before_an_error_of_the_same_round() -> None:
    at = Setting()
    data = at.bench.lease(at.control, GRANTED)
    first, second = [x for x in data.sent_commands() if isinstance(x, commands.Summon)]
    data.command(commands.Response(first.sequence, 200))
    at.bench.run()
    noticed: list[tuple[int, bool]] = []
    at.part.listener = lambda: noticed.append((len(at.part.queue), at.part.error is not None))
    data.command(content(1))
    data.command(commands.Response(second.sequence, 400))
    at.bench.run()
    assert noticed[-1] == (1, True)
    assert all(there for there, error in noticed if error)
