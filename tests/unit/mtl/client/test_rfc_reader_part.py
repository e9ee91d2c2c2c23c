from __future__ import annotations

from dataclasses import replace

from mtl.client.rfc_reader_part import RfcReaderPart
from mtl.errors import Refused
from mtl.protocol.reading import Delivery, PlainRun
from mtl.wire import commands, control
from mtl.wire.fields import EMPTY
from tests.support.memory_network import Bench, MemoryLink
from tests.unit.mtl.client.test_log_reader_part import OPTIONS


class Setting:
    def __init__(self, confirm: str = "none") -> None:
        self.bench = Bench()
        self.part = RfcReaderPart(self.bench.loop, self.bench.channel, replace(OPTIONS, confirm=confirm))
        self.part.flow.start()
        self.control = self.bench.ready()
        self.request = self.bench.last("request").asked()

    def summoned(self) -> MemoryLink:
        data = self.bench.lease(self.control, control.DataLease(port=1, lease="l"))
        self.part.summon()
        self.respond(data)
        return data

    def respond(self, data: MemoryLink) -> None:
        [summon] = [x for x in data.sent_commands() if isinstance(x, commands.Summon)]
        data.command(commands.Response(summon.sequence, 200))
        self.bench.run()

    def deliver(self, data: MemoryLink, *numbers: int) -> None:
        for number in numbers:
            data.command(commands.Content(number, "a", EMPTY, b"x"))
        self.bench.run()

    def consume(self, count: int) -> None:
        for _ in range(count):
            self.part.finish(self.part.queue.popleft())
        self.part.credit()
        self.bench.run()


def test_the_lease_request_has_only_members_of_the_rfc() -> None:
    assert Setting().request == control.ConnectionReader(session="token", resources=["a"], confirm="none")


def test_gaps_in_numbers_are_ignored() -> None:
    at = Setting()
    data = at.summoned()
    at.deliver(data, 5, 6, 7, 1, 1, 100)
    assert [(x.first, x.end) for x in at.part.queue] == [(5, 6), (6, 8), (1, 2), (1, 2), (100, 101)]
    assert isinstance(at.part.queue[0], Delivery)
    assert isinstance(at.part.queue[1], PlainRun)
    at.consume(5)
    assert (data.sent_commands(), at.control.sent) == ([], type(at.control.sent)())


def test_each_content_is_confirmed_by_its_number() -> None:
    at = Setting("full")
    data = at.summoned()
    at.deliver(data, 0, 0, 2**64 - 1, 0, 3)
    at.consume(4)
    assert data.sent_commands() == [commands.Confirm(n, multiple=False) for n in (0, 0, 2**64 - 1, 0)]
    at.part.confirm(3)
    assert data.sent_commands() == [commands.Confirm(3, multiple=True)]


def test_numbers_of_a_former_data_flow_are_not_confirmed() -> None:
    at = Setting("full")
    data = at.summoned()
    at.deliver(data, 1, 2)
    data.down()
    at.bench.run()
    again = at.bench.bind()
    at.respond(again)
    at.deliver(again, 1, 2)
    assert len(at.part.queue) == 4, "the RFC does not say that the first two are redelivered"
    at.consume(3)
    assert again.sent_commands() == [commands.Confirm(1, multiple=False)]


def test_a_refusal_fails_the_feed() -> None:
    at = Setting("full")
    at.control.refuse(501, "")
    at.bench.run()
    assert isinstance(at.part.error, Refused)


def test_close_waits_for_the_last_confirm_and_sends_no_request() -> None:
    at = Setting("full")
    data = at.summoned()
    at.deliver(data, 7)
    at.part.finish(at.part.queue.popleft())
    over: list[object] = []
    at.part.close(over.append, within=1.0)
    at.bench.run()
    assert (data.sent_commands(), over) == ([commands.Confirm(7, multiple=False), commands.Ping()], [])
    data.command(commands.Pong())
    at.bench.run()
    assert (data.closed, over) == (True, [control.Ok()])
    assert not at.control.sent, "no Lease.Close"
