from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from mtl.client.feed import Feed, ReaderOptions
from mtl.errors import Closed, DataLoss, NotGranted, Refused
from mtl.limits import CREDIT_DELAY_S
from mtl.net.machine import machine_mark
from mtl.protocol.reading import Gap
from mtl.wire import commands as c
from mtl.wire import control as w
from mtl.wire.commands import packed_properties
from mtl.wire.fields import EMPTY
from mtl.wire.places import Place
from tests.support.memory_network import Bench, MemoryLink

OPTIONS = ReaderOptions(
    resource="a",
    start="earliest",
    until=None,
    group=None,
    holder=None,
    epoch=None,
    packed=False,
    window_contents=10,
    window_bytes=1_000,
    incarnation=None,
    skip_lost=False,
    extended=True,
)
GRANTED = w.DataLease(
    port=1, lease="l", from_=1, window=w.Window(contents=10, bytes=1_000), incarnation="i", packed=False
)


class Setting:
    def __init__(self, **options: object) -> None:
        self.bench = Bench()
        self.feed = Feed(self.bench.loop, self.bench.channel, replace(OPTIONS, **options))  # type: ignore[arg-type]
        self.feed.flow.start()
        self.control = self.bench.ready()
        self.request = self.asked_for_a_lease()

    def asked_for_a_lease(self) -> w.Reader:
        asked = self.bench.last("request").asked()
        assert isinstance(asked, w.Reader)
        return asked

    def summoned(self, lease: w.DataLease = GRANTED) -> MemoryLink:
        data = self.bench.lease(self.control, lease)
        self.feed.summon()
        self.respond(data)
        return data

    def respond(self, data: MemoryLink) -> None:
        summons = [x for x in data.commands() if isinstance(x, c.Summon)]
        assert [x.resource for x in summons] == ["a"]
        data.command(c.Response(summons[0].sequence, 200))
        self.bench.run()

    def deliver(self, data: MemoryLink, *sequences: int, size: int = 10) -> None:
        for sequence in sequences:
            data.command(c.Content(sequence, "a", EMPTY, b"x" * size))
        self.bench.run()

    @property
    def delivered(self) -> list[tuple[int, int]]:
        return [(one.first, one.end) for one in self.feed.queue]


def test_everything_is_asked_for_that_must_be_echoed() -> None:
    at = Setting(until=9, packed=True, incarnation="i")
    assert at.request == w.Reader(
        session="token",
        resources=["a"],
        confirm="full",
        from_="earliest",
        until=9,
        window=w.Window(contents=10, bytes=1_000),
        packed=True,
        incarnation="i",
    )


@pytest.mark.parametrize(
    ("options", "granted", "member"),
    [
        ({}, {"from_": None}, "from"),
        ({}, {"window": None}, "window"),
        ({}, {"window": w.Window(contents=5)}, "window"),
        ({"packed": True}, {}, "packed"),
        ({"until": 5}, {}, "until"),
        ({"group": "g"}, {}, "group"),
    ],
)
def test_what_is_not_echoed_is_not_granted(
    options: dict[str, object], granted: dict[str, object], member: str
) -> None:
    at = Setting(**options)
    granting = w.DataLease(port=1, lease="l", from_=1, window=GRANTED.window)
    at.control.answer(msgspec.structs.replace(granting, **granted))
    at.bench.run()
    assert isinstance(at.feed.error, NotGranted)
    assert at.feed.error.member == member
    assert at.feed.granted_event.is_set()


def test_contents_are_queued_and_end_at_until() -> None:
    at = Setting(until=4)
    data = at.summoned(w.DataLease(port=1, lease="l", from_=1, until=4, window=GRANTED.window))
    at.deliver(data, 1, 2)
    assert (at.delivered, at.feed.ended) == ([(1, 2), (2, 3)], False)
    at.deliver(data, 3)
    assert (at.delivered[-1], at.feed.ended) == ((3, 4), True)


def test_contents_that_arrive_in_a_row_are_queued_as_one() -> None:
    at = Setting(window_contents=100)
    data = at.summoned(msgspec.structs.replace(GRANTED, window=w.Window(contents=100, bytes=1_000)))
    for sequence in range(1, 5):
        data.command(c.Content(sequence, "a", EMPTY, b"x"))
    at.bench.run()
    assert at.delivered == [(1, 2), (2, 5)]
    at.deliver(data, 7)
    assert isinstance(at.bench.last("request").asked(), w.ResourceDescribe), "a gap, though it looks the same"


def test_an_empty_range_ends_with_the_lease() -> None:
    at = Setting(start=5, until=5)
    at.control.answer(w.DataLease(port=1, lease="l", from_=5, until=5, window=GRANTED.window))
    at.bench.run()
    assert at.feed.ended


def test_nothing_is_summoned_before_the_application_reads() -> None:
    at = Setting()
    data = at.bench.lease(at.control, GRANTED)
    assert data.commands() == []
    at.feed.summon()
    at.feed.summon()
    assert len(data.commands()) == 1


def test_a_malformed_pack_is_dropped() -> None:
    at = Setting(packed=True)
    data = at.summoned(w.DataLease(port=1, lease="l", from_=1, window=GRANTED.window, packed=True))
    data.command(c.Content(0, "a", packed_properties(3), b""))
    data.command(c.Content(1, "a", packed_properties(3), b""))
    at.bench.run()
    assert at.delivered == [(1, 4)]


# --- losses -------------------------------------------------------------------------------------------------


def test_after_a_rebind_the_resource_is_summoned_again_and_repeats_are_dropped() -> None:
    at = Setting()
    data = at.summoned()
    at.deliver(data, 1, 2)
    data.down()
    at.bench.run()
    again = at.bench.bind()
    at.respond(again)
    at.deliver(again, 1, 2, 3)
    assert at.delivered == [(1, 2), (2, 3), (3, 4)]


def test_a_new_lease_goes_on_after_what_was_delivered_in_the_same_incarnation() -> None:
    at = Setting()
    data = at.summoned()
    at.deliver(data, 1, 2)
    data.down()
    at.bench.run()
    second = at.bench.last("data")
    [lease] = second.commands()
    assert isinstance(lease, c.Lease)
    second.command(c.Response(lease.sequence, 403))
    at.bench.run()
    asked = at.asked_for_a_lease()
    assert (asked.from_, asked.incarnation) == (3, "i")
    at.control.refuse(409, w.INCARNATION)
    at.bench.run()
    assert isinstance(at.feed.error, DataLoss)
    assert at.feed.error.first == 3


def test_another_incarnation_at_the_first_request_is_a_refusal() -> None:
    at = Setting(incarnation="old", start=7)
    at.control.refuse(409, w.INCARNATION)
    at.bench.run()
    assert type(at.feed.error) is Refused


def gap(at: Setting, earliest: int) -> None:
    data = at.summoned()
    at.deliver(data, 1)
    at.deliver(data, 5)
    assert at.delivered == [(1, 2)]
    asked = at.control.asked()
    assert isinstance(asked, w.ResourceDescribe)
    found = w.Description(resource="a", incarnation="i", earliest=earliest, next=9)
    at.control.answer(w.Resources(resources=[found]))
    at.bench.run()


def test_a_gap_that_retention_made_is_data_loss() -> None:
    at = Setting()
    gap(at, earliest=4)
    assert isinstance(at.feed.error, DataLoss)
    assert (at.feed.error.first, at.feed.error.end) == (2, 4)
    assert isinstance(at.control.asked(), w.LeaseClose)


def test_a_gap_that_retention_made_is_skipped_if_that_is_wanted() -> None:
    at = Setting(skip_lost=True)
    gap(at, earliest=4)
    assert (at.feed.error, at.feed.lost) == (None, [Gap(2, 4)])
    assert isinstance(at.control.asked(), w.LeaseClose)
    at.control.answer(w.LeaseClosed())
    at.bench.run()
    assert at.asked_for_a_lease().from_ == 4


def test_a_gap_that_the_transport_made_is_read_again() -> None:
    at = Setting()
    gap(at, earliest=1)
    assert (at.feed.error, at.feed.lost) == (None, [])
    at.control.asked()
    at.control.answer(w.LeaseClosed())
    at.bench.run()
    assert at.asked_for_a_lease().from_ == 2


def test_a_gap_in_a_resource_that_is_gone_is_the_end() -> None:
    at = Setting()
    data = at.summoned()
    at.deliver(data, 5)
    at.control.asked()
    at.control.refuse(404, w.UNKNOWN_RESOURCE)
    at.bench.run()
    assert isinstance(at.feed.error, Refused)


def test_a_lease_refused_for_lost_contents_is_skipped_or_not() -> None:
    for skip in (True, False):
        at = Setting(start=3, skip_lost=skip)
        at.control.refuse(409, w.DATA_LOSS, resource="a", first=3, end=8)
        at.bench.run()
        if skip:
            assert at.asked_for_a_lease().from_ == 8
            assert at.feed.lost == [Gap(3, 8)]
        else:
            assert isinstance(at.feed.error, DataLoss)


def test_a_position_above_the_end_is_an_error_though_losses_are_skipped() -> None:
    at = Setting(start=30, skip_lost=True)
    at.control.refuse(409, w.DATA_LOSS, resource="a", first=8, end=30)
    at.bench.run()
    assert isinstance(at.feed.error, DataLoss)


def test_a_grant_that_begins_too_late_is_data_loss() -> None:
    at = Setting(start=3)
    at.control.answer(w.DataLease(port=1, lease="l", from_=8, window=GRANTED.window))
    at.bench.run()
    assert isinstance(at.feed.error, DataLoss)


def test_a_resource_that_cannot_be_summoned_is_the_end() -> None:
    at = Setting()
    data = at.bench.lease(at.control, GRANTED)
    at.feed.summon()
    [summon] = data.commands()
    assert isinstance(summon, c.Summon)
    data.command(c.Response(summon.sequence, 400))
    at.bench.run()
    assert isinstance(at.feed.error, Refused)


# --- credit -------------------------------------------------------------------------------------------------


def confirms(data: MemoryLink) -> list[int]:
    return [x.sequence for x in data.commands() if isinstance(x, c.Confirm)]


def test_half_of_the_window_is_confirmed_at_once_and_less_after_a_while() -> None:
    at = Setting()
    data = at.summoned()
    at.deliver(data, *range(1, 8))
    at.feed.finished = 3
    at.feed.credit()
    assert confirms(data) == [2], "the application waits, and nothing was confirmed lately"
    at.feed.finished = 4
    at.feed.credit()
    assert confirms(data) == []
    at.bench.run(CREDIT_DELAY_S + 0.05)
    assert confirms(data) == [3]
    at.deliver(data, 8, 9)
    at.feed.finished = 9
    at.feed.credit()
    assert confirms(data) == [8]


def test_a_confirm_that_was_lost_is_repeated() -> None:
    at = Setting()
    data = at.summoned()
    at.deliver(data, 1, 2)
    at.feed.finished = 3
    at.feed.credit()
    assert confirms(data) == [2]
    data.down()
    at.bench.run()
    again = at.bench.bind()
    at.respond(again)
    at.deliver(again, 1, 2)
    at.bench.run(CREDIT_DELAY_S + 0.05)
    assert confirms(again) == [2]


def test_a_holders_confirm_goes_out_at_once_needs_no_summon_and_survives_a_rebind() -> None:
    at = Setting(group="g", holder="h")
    data = at.bench.lease(
        at.control, w.DataLease(port=1, lease="l", from_=1, window=GRANTED.window, epoch=3, position=1)
    )
    at.feed.confirm(7)
    at.feed.confirm(5)
    assert confirms(data) == [7]
    data.down()
    at.bench.run()
    again = at.bench.bind()
    assert confirms(again) == [7]
    again.down()
    at.bench.run()
    third = at.bench.last("data")
    [lease] = third.commands()
    assert isinstance(lease, c.Lease)
    third.command(c.Response(lease.sequence, 403))
    at.bench.run()
    asked = at.asked_for_a_lease()
    assert (asked.group, asked.holder, asked.epoch) == ("g", "h", 3), "it goes on; it does not take over"
    assert asked.from_ == 8, "what it confirmed unread may be gone by now"


# --- the end ------------------------------------------------------------------------------------------------


def test_closing_waits_for_the_pong_after_a_confirm() -> None:
    at = Setting(group="g", holder="h")
    data = at.bench.lease(at.control, w.DataLease(port=1, lease="l", from_=1, window=GRANTED.window, epoch=1))
    at.feed.confirm(7)
    at.feed.close(lambda _: None, within=1.0)
    at.bench.run()
    assert (data.commands(), data.closed) == ([c.Confirm(7, multiple=True), c.Ping()], False)
    data.command(c.Pong())
    at.bench.run()
    assert data.closed
    assert isinstance(at.control.asked(), w.LeaseClose)
    assert isinstance(at.feed.error, Closed)


def test_closing_does_not_wait_for_ever() -> None:
    at = Setting(group="g", holder="h")
    data = at.bench.lease(at.control, w.DataLease(port=1, lease="l", from_=1, window=GRANTED.window, epoch=1))
    at.feed.confirm(7)
    at.feed.close(lambda _: None, within=1.0)
    at.bench.run(1.1)
    assert data.closed


# --- another profile ----------------------------------------------------------------------------------------


def test_an_rfc_server_is_asked_for_what_the_rfc_knows() -> None:
    at = Setting(extended=False, confirm="none")
    assert at.request == w.Reader(session="token", resources=["a"], confirm="none")
    data = at.summoned(w.DataLease(port=1, lease="l"))
    at.deliver(data, 5, 6)
    assert at.delivered == [(5, 6), (6, 7)]
    data.down()
    at.bench.run()
    again = at.bench.bind()
    at.respond(again)
    at.deliver(again, 1)
    assert at.delivered[-1] == (1, 2), "delivery numbers begin again with each flow"
    at.feed.credit()
    assert again.commands() == []


# --- packs that are told by their place ---------------------------------------------------------------------


@pytest.mark.parametrize(("local", "mark"), [(True, machine_mark()), (False, None)])
def test_the_machine_is_named_only_by_who_would_look_for_its_files(local: bool, mark: str | None) -> None:
    assert Setting(local=local).request.local == mark


def test_what_cannot_be_read_at_its_place_is_asked_for_again_as_octets() -> None:
    at = Setting(local=True, until=9, packed=True)
    data = at.summoned(
        msgspec.structs.replace(GRANTED, until=9, packed=True, local=w.LocalFiles(directory="/d", key="k"))
    )
    data.command(c.Content(1, "a", Place("/d/f", 0, 100).properties(8, 7), b""))
    at.bench.run()
    assert at.feed.ended

    at.feed.send_instead(1)
    assert isinstance(at.control.asked(), w.LeaseClose)
    at.control.said.clear()
    at.control.answer(w.LeaseClosed())
    at.bench.run()

    again = at.asked_for_a_lease()
    assert (again.from_, again.until, again.local) == (1, 9, None)
    assert (at.feed.ended, list(at.feed.queue)) == (False, [])
