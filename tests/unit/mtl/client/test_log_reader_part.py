from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from mtl.client.limits import TURN_MESSAGES
from mtl.client.log_reader_part import LogReaderPart
from mtl.client.reader_part import ReaderOptions
from mtl.errors import Closed, DataLoss, NotGranted, Refused
from mtl.limits import CREDIT_DELAY_S
from mtl.net.machine import machine_mark
from mtl.protocol.reading import Gap
from mtl.protocol.states import FORBIDDEN, LEASE_ENDED
from mtl.wire import commands, control
from mtl.wire.commands import packed_properties
from mtl.wire.fields import EMPTY
from mtl.wire.ranges import FileRange
from tests.support.memory_network import Bench, MemoryLink

OPTIONS = ReaderOptions(
    resource="a",
    start="earliest",
    until=None,
    group=None,
    holder=None,
    holding_epoch=None,
    packed=False,
    window_contents=10,
    window_bytes=1_000,
    incarnation=None,
    skip_lost=False,
)
GRANTED = control.DataLease(
    port=1, lease="l", from_=1, window=control.Window(contents=10, bytes=1_000), incarnation="i", packed=False
)


class Setting:
    def __init__(self, **options: object) -> None:
        self.bench = Bench()
        self.part = LogReaderPart(self.bench.loop, self.bench.channel, replace(OPTIONS, **options))  # type: ignore[arg-type]
        self.part.flow.start()
        self.control = self.bench.ready()
        self.request = self.asked_for_a_lease()

    def asked_for_a_lease(self) -> control.ConnectionReader:
        asked = self.bench.last("request").asked()
        assert isinstance(asked, control.ConnectionReader)
        return asked

    def summoned(self, lease: control.DataLease = GRANTED) -> MemoryLink:
        data = self.bench.lease(self.control, lease)
        self.part.summon()
        self.respond(data)
        return data

    def respond(self, data: MemoryLink) -> None:
        summons = [x for x in data.sent_commands() if isinstance(x, commands.Summon)]
        assert [x.resource for x in summons] == ["a"]
        data.command(commands.Response(summons[0].sequence, 200))
        self.bench.run()

    def deliver(self, data: MemoryLink, *sequences: int, size: int = 10) -> None:
        for sequence in sequences:
            data.command(commands.Content(sequence, "a", EMPTY, b"x" * size))
        self.bench.run()

    @property
    def delivered(self) -> list[tuple[int, int]]:
        return [(delivery.first, delivery.end) for delivery in self.part.queue]


def test_the_lease_request_of_a_reader() -> None:
    at = Setting(until=9, packed=True, incarnation="i")
    assert at.request == control.ConnectionReader(
        session="token",
        request_id=at.part.flow.id,
        binding=True,
        resources=["a"],
        confirm="full",
        from_="earliest",
        until=9,
        window=control.Window(contents=10, bytes=1_000),
        packed=True,
        incarnation="i",
    )


@pytest.mark.parametrize(
    ("options", "granted", "member"),
    [
        ({}, {"from_": None}, "from"),
        ({}, {"window": None}, "window"),
        ({}, {"window": control.Window(contents=5)}, "window"),
        ({"packed": True}, {}, "packed"),
        ({"until": 5}, {}, "until"),
        ({"group": "g"}, {}, "group"),
    ],
)
def test_a_member_that_is_not_echoed_is_not_granted(
    options: dict[str, object], granted: dict[str, object], member: str
) -> None:
    at = Setting(**options)
    granting = control.DataLease(port=1, lease="l", from_=1, window=GRANTED.window)
    at.control.answer(msgspec.structs.replace(granting, **granted))
    at.bench.run()
    assert isinstance(at.part.error, NotGranted)
    assert at.part.error.member == member


def test_contents_are_queued_and_end_at_until() -> None:
    at = Setting(until=4)
    data = at.summoned(control.DataLease(port=1, lease="l", from_=1, until=4, window=GRANTED.window))
    at.deliver(data, 1, 2)
    assert (at.delivered, at.part.ended) == ([(1, 2), (2, 3)], False)
    at.deliver(data, 3)
    assert (at.delivered[-1], at.part.ended) == ((3, 4), True)


def test_consecutive_contents_are_queued_as_one_run() -> None:
    at = Setting(window_contents=100)
    data = at.summoned(msgspec.structs.replace(GRANTED, window=control.Window(contents=100, bytes=1_000)))
    for sequence in range(1, 5):
        data.command(commands.Content(sequence, "a", EMPTY, b"x"))
    at.bench.run()
    assert at.delivered == [(1, 2), (2, 5)]
    at.deliver(data, 7)
    assert isinstance(at.bench.last("request").asked(), control.ResourceDescribe), (
        "a gap, though it looks the same"
    )


def test_an_empty_range_ends_with_the_lease() -> None:
    at = Setting(start=5, until=5)
    at.control.answer(control.DataLease(port=1, lease="l", from_=5, until=5, window=GRANTED.window))
    at.bench.run()
    assert at.part.ended


def test_the_resource_is_not_summoned_before_the_application_reads() -> None:
    at = Setting()
    data = at.bench.lease(at.control, GRANTED)
    assert data.sent_commands() == []
    at.part.summon()
    at.part.summon()
    assert len(data.sent_commands()) == 1


def test_a_malformed_pack_is_dropped() -> None:
    at = Setting(packed=True)
    data = at.summoned(control.DataLease(port=1, lease="l", from_=1, window=GRANTED.window, packed=True))
    data.command(commands.Content(0, "a", packed_properties(3), b""))
    data.command(commands.Content(1, "a", packed_properties(3), b""))
    at.bench.run()
    assert at.delivered == [(1, 4)]


# --- losses -------------------------------------------------------------------------------------------------


def test_after_a_rebind_repeated_contents_are_dropped() -> None:
    at = Setting()
    data = at.summoned()
    at.deliver(data, 1, 2)
    data.down()
    at.bench.run()
    again = at.bench.bind()
    at.respond(again)
    at.deliver(again, 1, 2, 3)
    assert at.delivered == [(1, 2), (2, 3), (3, 4)]


def test_a_new_lease_continues_after_delivered_contents() -> None:
    at = Setting()
    data = at.summoned()
    at.deliver(data, 1, 2)
    data.down()
    at.bench.run()
    second = at.bench.last("data")
    [lease] = second.sent_commands()
    assert isinstance(lease, commands.Lease)
    second.command(commands.Response(lease.sequence, 403))
    at.bench.run()
    asked = at.asked_for_a_lease()
    assert (asked.from_, asked.incarnation) == (3, "i")
    at.control.refuse(409, control.INCARNATION)
    at.bench.run()
    assert isinstance(at.part.error, DataLoss)
    assert at.part.error.first == 3


def test_another_incarnation_at_the_first_request_is_a_refusal() -> None:
    at = Setting(incarnation="old", start=7)
    at.control.refuse(409, control.INCARNATION)
    at.bench.run()
    assert type(at.part.error) is Refused


def gap(at: Setting, earliest: int) -> None:
    data = at.summoned()
    at.deliver(data, 1)
    at.deliver(data, 5)
    assert at.delivered == [(1, 2)]
    asked = at.control.asked()
    assert isinstance(asked, control.ResourceDescribe)
    found = control.Description(resource="a", incarnation="i", known_earliest=earliest, known_next=9)
    at.control.answer(control.DescriptionList(resources=[found]))
    at.bench.run()


def test_a_gap_made_by_retention_is_data_loss() -> None:
    at = Setting()
    gap(at, earliest=4)
    assert isinstance(at.part.error, DataLoss)
    assert (at.part.error.first, at.part.error.end) == (2, 4)
    assert isinstance(at.control.asked(), control.LeaseClose)


def test_a_gap_made_by_retention_is_skipped_with_skip_lost() -> None:
    at = Setting(skip_lost=True)
    gap(at, earliest=4)
    assert (at.part.error, at.part.lost) == (None, [Gap(2, 4)])
    assert isinstance(at.control.asked(), control.LeaseClose)
    at.control.answer(control.LeaseClosed())
    at.bench.run()
    assert at.asked_for_a_lease().from_ == 4


def test_a_gap_made_by_the_transport_is_read_again() -> None:
    at = Setting()
    gap(at, earliest=1)
    assert (at.part.error, at.part.lost) == (None, [])
    at.control.asked()
    at.control.answer(control.LeaseClosed())
    at.bench.run()
    assert at.asked_for_a_lease().from_ == 2


def test_a_gap_in_a_resource_that_cannot_be_opened_is_a_storage_error() -> None:
    at = Setting(skip_lost=True)
    data = at.summoned()
    at.deliver(data, 5)
    at.control.asked()
    found = control.Description(resource="a", incarnation="i", state="stopped", trouble="no space left")
    at.control.answer(control.DescriptionList(resources=[found]))
    at.bench.run()
    assert isinstance(at.part.error, Refused)
    assert (at.part.error.reason, at.part.lost) == (control.STORAGE, [])


def test_a_gap_in_a_deleted_resource_is_an_error() -> None:
    at = Setting()
    data = at.summoned()
    at.deliver(data, 5)
    at.control.asked()
    at.control.refuse(404, control.UNKNOWN_RESOURCE)
    at.bench.run()
    assert isinstance(at.part.error, Refused)


def test_a_lease_refused_with_data_loss_is_repeated_only_with_skip_lost() -> None:
    for skip in (True, False):
        at = Setting(start=3, skip_lost=skip)
        at.control.refuse(409, control.DATA_LOSS, resource="a", first=3, end=8)
        at.bench.run()
        if skip:
            assert at.asked_for_a_lease().from_ == 8
            assert at.part.lost == [Gap(3, 8)]
        else:
            assert isinstance(at.part.error, DataLoss)


def test_a_position_above_the_end_is_an_error_even_with_skip_lost() -> None:
    at = Setting(start=30, skip_lost=True)
    at.control.refuse(409, control.DATA_LOSS, resource="a", first=8, end=30)
    at.bench.run()
    assert isinstance(at.part.error, DataLoss)


def test_a_grant_that_starts_too_late_is_data_loss() -> None:
    at = Setting(start=3)
    at.control.answer(control.DataLease(port=1, lease="l", from_=8, window=GRANTED.window))
    at.bench.run()
    assert isinstance(at.part.error, DataLoss)


def test_a_refused_summon_is_an_error() -> None:
    at = Setting()
    data = at.bench.lease(at.control, GRANTED)
    at.part.summon()
    [summon] = data.sent_commands()
    assert isinstance(summon, commands.Summon)
    data.command(commands.Response(summon.sequence, 400))
    at.bench.run()
    assert isinstance(at.part.error, Refused)


# --- epochs (PROTOCOL.md 5.1.1) -----------------------------------------------------------------------------

ONE, TWO = "1.aaaaaaaa", "2.bbbbbbbb"
IN_TWO = msgspec.structs.replace(GRANTED, from_=5, next=8, history=((1, ONE), (8, TWO)))


def asked_again(data: MemoryLink, at: Setting) -> control.ConnectionReader:
    """The broker has restarted: the unknown lease is followed by a request for a new one."""
    data.down()
    at.bench.run()
    second = at.bench.last("data")
    [lease] = second.sent_commands()
    assert isinstance(lease, commands.Lease)
    second.command(commands.Response(lease.sequence, 403))
    at.bench.run()
    return at.asked_for_a_lease()


@pytest.mark.parametrize(
    ("delivered", "position", "epoch"), [((), 5, ONE), ((5, 6, 7), 8, ONE), ((5, 6, 7, 8), 9, TWO)]
)
def test_a_new_lease_is_requested_with_the_epoch_of_the_last_content(
    delivered: tuple[int, ...], position: int, epoch: str
) -> None:
    at = Setting(start=5, log_epoch=ONE)
    assert at.request.log_epoch == ONE
    data = at.summoned(IN_TWO)
    at.deliver(data, *delivered)
    assert at.part.log_epoch(position) == epoch
    asked = asked_again(data, at)
    assert (asked.from_, asked.log_epoch) == (position, epoch)


@pytest.mark.parametrize("skip", [False, True])
def test_another_copy_of_the_log_is_data_loss_or_read_from_where_it_diverges(skip: bool) -> None:
    at = Setting(start=5, skip_lost=skip)
    data = at.summoned(IN_TWO)
    at.deliver(data, 5, 6, 7, 8, 9)
    at.part.queue.popleft()
    at.part.finished = 6
    asked_again(data, at)
    at.control.refuse(409, control.DATA_LOSS, resource="a", first=7, end=10, **{"from": 7})
    at.bench.run()
    if not skip:
        assert isinstance(at.part.error, DataLoss)
        assert (at.part.error.first, at.part.error.end) == (7, 10)
        return
    asked = at.asked_for_a_lease()
    assert (asked.from_, asked.log_epoch) == (7, None)
    assert (at.part.lost, at.delivered) == ([Gap(7, 10)], [])
    again = at.bench.lease(
        at.control, msgspec.structs.replace(GRANTED, from_=7, next=12, history=((1, ONE),))
    )
    at.respond(again)
    at.deliver(again, 7, 8)
    at.part.finished = 10  # said of a content of the other copy, which was in hand
    at.part.credit()
    assert confirms(again) == []
    at.part.finished = 9
    at.part.credit()
    at.bench.run(CREDIT_DELAY_S + 0.05)
    assert confirms(again) == [8]


def test_a_repeated_loss_without_range_is_an_error() -> None:
    at = Setting(start=5, log_epoch=TWO, skip_lost=True)
    at.control.refuse(409, control.DATA_LOSS, resource="a", first=5, end=5, **{"from": 5})
    at.bench.run()
    asked = at.asked_for_a_lease()
    assert (asked.from_, asked.log_epoch) == (5, None)
    at.control.refuse(409, control.DATA_LOSS, resource="a", first=5, end=5, **{"from": 5})
    at.bench.run()
    assert isinstance(at.part.error, DataLoss)


@pytest.mark.parametrize(
    ("history", "following", "lost"),
    [
        (((1, ONE), (8, TWO)), 12, None),
        (((1, ONE), (8, TWO)), 9, (9, 10)),  # shorter than it was
        (((1, ONE), (8, "2.cccccccc")), 12, (8, 10)),
        ((), 12, (6, 10)),
    ],
)
def test_the_epoch_of_the_end_of_a_range_is_checked(
    history: control.Epochs, following: int, lost: tuple[int, int] | None
) -> None:
    at = Setting(start=6, until=10, until_epoch=TWO)
    at.control.answer(msgspec.structs.replace(GRANTED, from_=6, until=10, next=following, history=history))
    at.bench.run()
    if lost is None:
        assert at.part.error is None
    else:
        assert isinstance(at.part.error, DataLoss)
        assert at.part.error.end == 10
        assert at.part.error.first == lost[0] or not history


# --- credit -------------------------------------------------------------------------------------------------


def confirms(data: MemoryLink) -> list[int]:
    return [x.sequence for x in data.sent_commands() if isinstance(x, commands.Confirm)]


def test_half_of_the_window_is_confirmed_at_once_and_less_after_a_delay() -> None:
    at = Setting()
    data = at.summoned()
    at.deliver(data, *range(1, 8))
    at.part.finished = 3
    at.part.credit()
    assert confirms(data) == [2], "the application waits, and nothing was confirmed lately"
    at.part.finished = 4
    at.part.credit()
    assert confirms(data) == []
    at.bench.run(CREDIT_DELAY_S + 0.05)
    assert confirms(data) == [3]
    at.deliver(data, 8, 9)
    at.part.finished = 9
    at.part.credit()
    assert confirms(data) == [8]


def test_a_lost_confirm_is_repeated() -> None:
    at = Setting()
    data = at.summoned()
    at.deliver(data, 1, 2)
    at.part.finished = 3
    at.part.credit()
    assert confirms(data) == [2]
    data.down()
    at.bench.run()
    again = at.bench.bind()
    at.respond(again)
    at.deliver(again, 1, 2)
    at.bench.run(CREDIT_DELAY_S + 0.05)
    assert confirms(again) == [2]


def test_a_holders_confirm_is_sent_at_once_and_again_after_a_rebind() -> None:
    at = Setting(group="g", holder="h")
    data = at.bench.lease(
        at.control, control.DataLease(port=1, lease="l", from_=1, window=GRANTED.window, epoch=3, position=1)
    )
    at.part.confirm(7)
    at.part.confirm(5)
    assert confirms(data) == [7]
    data.down()
    at.bench.run()
    again = at.bench.bind()
    assert confirms(again) == [7]
    again.down()
    at.bench.run()
    third = at.bench.last("data")
    [lease] = third.sent_commands()
    assert isinstance(lease, commands.Lease)
    third.command(commands.Response(lease.sequence, 403))
    at.bench.run()
    asked = at.asked_for_a_lease()
    assert (asked.group, asked.holder, asked.epoch) == ("g", "h", 3), (
        "the holder continues; it does not take over"
    )
    assert asked.from_ == 8, "contents confirmed unread may have been removed"


# --- the end ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("last", [1, 7])
def test_close_waits_for_the_pong_after_a_confirm(last: int) -> None:
    at = Setting(group="g", holder="h")
    data = at.bench.lease(
        at.control, control.DataLease(port=1, lease="l", from_=1, window=GRANTED.window, epoch=1)
    )
    at.part.confirm(last)
    at.part.close(lambda _: None, within=1.0)
    at.bench.run()
    assert (data.sent_commands(), data.closed) == (
        [commands.Confirm(last, multiple=True), commands.Ping()],
        False,
    )
    data.command(commands.Pong())
    at.bench.run()
    assert data.closed
    assert isinstance(at.control.asked(), control.LeaseClose)
    assert isinstance(at.part.error, Closed)


def test_close_has_a_deadline() -> None:
    at = Setting(group="g", holder="h")
    data = at.bench.lease(
        at.control, control.DataLease(port=1, lease="l", from_=1, window=GRANTED.window, epoch=1)
    )
    at.part.confirm(7)
    at.part.close(lambda _: None, within=1.0)
    at.bench.run(1.1)
    assert data.closed


# --- packs that are told by their place ---------------------------------------------------------------------


@pytest.mark.parametrize(("local", "mark"), [(True, machine_mark()), (False, None)])
def test_only_a_local_reader_names_its_machine(local: bool, mark: str | None) -> None:
    assert Setting(local=local).request.local == mark


def test_a_pack_unreadable_in_its_local_file_is_requested_as_octets() -> None:
    at = Setting(local=True, until=9, packed=True)
    data = at.summoned(
        msgspec.structs.replace(
            GRANTED, until=9, packed=True, local=control.LocalFiles(directory="/d", key="k")
        )
    )
    data.command(commands.Content(1, "a", FileRange("/d/f", 0, 100).properties(8, 7), b""))
    at.bench.run()
    assert at.part.ended

    at.part.send_instead(1)
    assert isinstance(at.control.asked(), control.LeaseClose)
    at.control.sent.clear()
    at.control.answer(control.LeaseClosed())
    at.bench.run()

    again = at.asked_for_a_lease()
    assert (again.from_, again.until, again.local) == (1, 9, None)
    assert (at.part.ended, list(at.part.queue)) == (False, [])


def test_the_grant_of_a_former_request_is_not_a_gap() -> None:
    """The lease was lost, and another one requested from 3 on, when a pack from 1 on could not be read in its file."""
    at = Setting(local=True, packed=True)
    local = msgspec.structs.replace(GRANTED, packed=True, local=control.LocalFiles(directory="/d", key="k"))
    data = at.summoned(local)
    data.command(commands.Content(1, "a", FileRange("/d/f", 0, 100).properties(2, 7), b""))
    at.bench.run()
    assert at.delivered == [(1, 3)]
    data.down()
    at.bench.run()
    again = at.bench.last("data")
    [lease] = again.sent_commands()
    assert isinstance(lease, commands.Lease)
    again.command(commands.Response(lease.sequence, 404))  # the broker started again, and knows no lease
    at.bench.run()
    assert at.asked_for_a_lease().from_ == 3

    at.part.send_instead(1)
    at.control.sent.clear()
    at.control.answer(msgspec.structs.replace(local, from_=3, lease="second"))
    at.bench.run()
    assert at.part.error is None
    request = at.asked_for_a_lease()
    assert (request.from_, request.local) == (1, None)
    at.control.answer(msgspec.structs.replace(GRANTED, packed=True, lease="third"))
    at.bench.run()
    assert (at.part.error, at.part.lease and at.part.lease.lease) == (None, "third")


def test_a_closed_feed_requests_no_new_lease() -> None:
    at = Setting(local=True, packed=True)
    at.bench.lease(at.control, msgspec.structs.replace(GRANTED, packed=True))
    at.part.close(lambda _: None, within=1.0)
    at.bench.run()
    assert isinstance(at.control.asked(), control.LeaseClose)
    at.control.answer(control.LeaseClosed())
    at.bench.run()
    at.part.send_instead(1)
    at.bench.run()
    assert not at.control.sent


def arrive(data: MemoryLink, *commands: commands.Command) -> None:
    """Messages that the client finds together."""
    for command in commands:
        data.command(command)


CONTENTS = [commands.Content(sequence, "a", EMPTY, b"x") for sequence in (1, 2, 3)]


@pytest.mark.parametrize("together", [True, False])
def test_contents_that_arrive_with_the_end_of_the_lease_come_before_the_error(together: bool) -> None:
    at = Setting()
    data = at.summoned()
    arrive(data, *CONTENTS)
    if not together:
        at.bench.run()
    noticed: list[tuple[int, bool]] = []
    at.part.listener = lambda: noticed.append((len(at.delivered), at.part.error is not None))
    arrive(data, commands.Response(LEASE_ENDED, FORBIDDEN))
    at.bench.run()
    again = at.bench.last("data")
    [lease] = again.sent_commands()
    assert isinstance(lease, commands.Lease)
    again.command(commands.Response(lease.sequence, FORBIDDEN))
    at.bench.run()
    asked = at.bench.last("request")
    assert isinstance(asked.asked(), control.ConnectionReader)
    asked.refuse(503, "storage")
    at.bench.run()
    assert sum(end - first for first, end in at.delivered) == 3
    assert isinstance(at.part.error, Refused)
    assert noticed[-1] == (len(at.delivered), True)
    assert all(there for there, error in noticed if error)


def test_contents_that_arrive_with_the_end_of_the_connection_are_delivered() -> None:
    """More than the flow handles in one round."""
    at = Setting(window_contents=10_000, window_bytes=1 << 20)
    lease = msgspec.structs.replace(GRANTED, window=control.Window(contents=10_000, bytes=1 << 20))
    data = at.summoned(lease)
    arrive(
        data, *(commands.Content(sequence, "a", EMPTY, b"x") for sequence in range(1, 2 * TURN_MESSAGES + 10))
    )
    data.down()
    at.bench.loop.step(0.0)
    assert at.delivered[-1][1] == 2 * TURN_MESSAGES + 10


def test_contents_that_arrive_with_a_loss_are_delivered_before_it() -> None:
    at = Setting()
    data = at.summoned()
    arrive(data, CONTENTS[0], commands.Content(9, "a", EMPTY, b"x"))
    at.bench.run()
    asked = at.bench.last("request")
    assert isinstance(asked.asked(), control.ResourceDescribe)
    found = control.Description(resource="a", incarnation="i", known_earliest=9, known_next=10)
    asked.answer(control.DescriptionList(resources=[found]))
    at.bench.run()
    assert at.delivered == [(1, 2)]
    assert isinstance(at.part.error, DataLoss)
