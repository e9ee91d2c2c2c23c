from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from mtl.client.control import Outcome
from mtl.client.limits import QUIET_S, TURN_MESSAGES
from mtl.client.writer_part import WriterOptions, WriterPart
from mtl.errors import Closed, DataLoss, Fenced, NotGranted, Refused
from mtl.protocol.limits import RESEND_DELAY_S
from mtl.wire import commands, control
from mtl.wire.fields import EMPTY
from tests.support.memory_network import Bench, MemoryLink

OPTIONS = WriterOptions(
    resources=("a",),
    name="me",
    packed=False,
    stage=None,
    window_contents=1_000,
    window_bytes=1 << 20,
    incarnations=None,
    extended=True,
)
GRANTED = control.DataLease(port=1, lease="l", last={"a": 0}, max_content=100, max_pack=200, heartbeat=0)
STAGE = control.StageSpec(application="app", version=3)


class Setting:
    def __init__(self, **options: object) -> None:
        self.bench = Bench()
        self.part = WriterPart(self.bench.loop, self.bench.channel, replace(OPTIONS, **options))  # type: ignore[arg-type]
        self.part.flow.start()
        self.control = self.bench.ready()
        self.request = self.asked_for_a_lease()

    def asked_for_a_lease(self) -> control.ConnectionWriter:
        asked = self.bench.last("request").asked()
        assert isinstance(asked, control.ConnectionWriter)
        return asked

    def bound(self, lease: control.DataLease = GRANTED) -> MemoryLink:
        return self.bench.lease(self.control, lease)

    def publish(self, count: int = 1) -> None:
        for _ in range(count):
            self.part.writer.publish("a", EMPTY, b"x")
        self.bench.loop.post(self.part.run)
        self.bench.run()


def numbers(link: MemoryLink) -> list[int]:
    return [x.sequence for x in link.sent_commands() if isinstance(x, commands.Content)]


def test_the_lease_request_of_a_writer_has_its_name_or_stage() -> None:
    named, staged = Setting(incarnations={"a": "i"}), Setting(name=None, stage=STAGE, packed=True)
    asked = control.ConnectionWriter(session="token", resources=["a"], confirm="full", binding=True)
    assert named.request == msgspec.structs.replace(
        asked, writer="me", incarnations={"a": "i"}, request_id=named.part.flow.id
    )
    assert staged.request == msgspec.structs.replace(
        asked, packed=True, stage=STAGE, request_id=staged.part.flow.id
    )
    assert Setting(extended=False, confirm="none").request == control.ConnectionWriter(
        session="token", resources=["a"], confirm="none"
    )


@pytest.mark.parametrize(
    ("options", "member"),
    [({"packed": True}, "packed"), ({}, "writer"), ({"name": None, "stage": STAGE}, "stage")],
)
def test_a_member_that_is_not_echoed_is_not_granted(options: dict[str, object], member: str) -> None:
    at = Setting(**options)
    at.control.answer(control.DataLease(port=1, lease="l"))
    at.bench.run()
    assert isinstance(at.part.error, NotGranted)
    assert at.part.error.member == member


@pytest.mark.parametrize("packed", [False, True])
def test_contents_dropped_by_a_broker_that_ended_the_flow_are_resent(packed: bool) -> None:
    at = Setting(packed=packed)
    first = at.bound(msgspec.structs.replace(GRANTED, packed=packed))
    at.publish(3)
    first.command(commands.Confirm(1, True))
    at.bench.run(5.5)
    [probe] = [x for x in first.sent_commands() if isinstance(x, commands.Lease)][-1:]
    first.command(commands.Response(probe.sequence, 201))
    at.bench.run()
    second = at.bench.last("data")
    assert second is not first
    [lease] = [x for x in second.sent_commands() if isinstance(x, commands.Lease)]
    second.command(commands.Response(lease.sequence, 201))
    at.bench.run()
    assert numbers(second) == [2, 3]


def test_contents_published_before_the_bind_are_sent_with_it() -> None:
    at = Setting()
    at.control.answer(GRANTED)
    at.bench.run()
    assert (at.part.max_content, at.part.max_pack, at.part.sending) == (100, 200, False)
    at.publish(3)
    data = at.bench.bind()
    assert numbers(data) == [1, 2, 3]
    assert at.part.sending


def test_numbers_continue_after_the_last_ones_of_the_name() -> None:
    at = Setting()
    data = at.bound(control.DataLease(port=1, lease="l", last={"a": 7, "b": 9}))
    at.publish()
    assert numbers(data) == [10]


def test_many_contents_are_sent_in_turns() -> None:
    at = Setting()
    data = at.bound()
    at.publish(3 * TURN_MESSAGES)
    assert numbers(data) == list(range(1, 3 * TURN_MESSAGES + 1))


def test_contents_wait_while_the_socket_is_full() -> None:
    at = Setting()
    data = at.bound()
    data.make_room(2)
    at.publish(5)
    assert numbers(data) == [1, 2]
    data.make_room()
    at.bench.run()
    assert numbers(data) == [3, 4, 5]


def test_confirms_settle_contents_and_rejects_resend_them_after_a_pause() -> None:
    at = Setting()
    data = at.bound()
    at.publish(3)
    numbers(data)
    data.command(commands.Confirm(1, multiple=True))
    data.command(commands.Reject(2, multiple=False, recycle=True))
    at.bench.run()
    assert at.part.writer.unconfirmed == 2
    assert numbers(data) == []
    at.bench.run(RESEND_DELAY_S + 0.05)
    assert numbers(data) == [2, 3]
    data.command(commands.Reject(2, multiple=False, recycle=False))
    data.command(commands.Confirm(3, multiple=True))
    at.bench.run()
    assert [refused.last for refused in at.part.writer.refused] == [2]
    assert at.part.writer.unconfirmed == 0


def test_unconfirmed_contents_are_resent_on_a_new_connection() -> None:
    at = Setting()
    data = at.bound()
    at.publish(3)
    data.command(commands.Confirm(1, multiple=True))
    at.bench.run()
    data.down()
    at.bench.run()
    assert not at.part.sending
    assert numbers(at.bench.bind()) == [2, 3]


def forget_the_lease(at: Setting, data: MemoryLink) -> None:
    data.down()
    at.bench.run()
    again = at.bench.last("data")
    [lease] = again.sent_commands()
    assert isinstance(lease, commands.Lease)
    again.command(commands.Response(lease.sequence, 403))
    at.bench.run()


def confirmed(at: Setting) -> MemoryLink:
    """Three contents are published, and two of them confirmed."""
    data = at.bound()
    at.publish(3)
    numbers(data)
    data.command(commands.Confirm(2, multiple=True))
    at.bench.run()
    return data


def test_a_loss_of_confirmed_contents_fails_the_writer() -> None:
    """Otherwise the broker would wait for the missing numbers for ever, and the application with it."""
    at = Setting()
    forget_the_lease(at, confirmed(at))
    at.asked_for_a_lease()
    at.control.answer(GRANTED)
    at.bench.run()
    assert isinstance(at.part.error, DataLoss)
    assert (at.part.error.resource, at.part.error.first, at.part.error.end) == ("a", 1, 3)


def test_a_name_unknown_to_the_broker_counts_as_loss() -> None:
    at = Setting()
    forget_the_lease(at, confirmed(at))
    at.asked_for_a_lease()
    at.control.refuse(404, control.UNKNOWN_WRITER)
    at.bench.run()
    assert isinstance(at.part.error, DataLoss)
    assert (at.part.error.first, at.part.error.end) == (1, 3)


RUN = ("i", "2.bbbbbbbb")


@pytest.mark.parametrize(
    ("last", "confirmed", "written"),
    [
        (0, 2, {"a": RUN}),  # written in this run of the broker
        (0, 0, None),
        (2, 2, None),  # the broker had both, from the run before
        (2, 3, {"a": RUN}),
    ],
)
def test_a_new_lease_is_requested_with_the_epoch_of_confirmed_contents(
    last: int, confirmed: int, written: dict[str, control.WrittenIn] | None
) -> None:
    at = Setting()
    data = at.bound()
    at.publish(3)
    forget_the_lease(at, data)
    assert at.asked_for_a_lease().log_epochs is None
    data = at.bound(msgspec.structs.replace(GRANTED, last={"a": last}, log_epochs={"a": RUN}))
    if confirmed:
        data.command(commands.Confirm(confirmed, multiple=True))
        at.bench.run()
    forget_the_lease(at, data)
    assert at.asked_for_a_lease().log_epochs == written
    at.control.refuse(409, control.DATA_LOSS, resource="a", first=1, end=1)
    at.bench.run()
    assert isinstance(at.part.error, DataLoss)


def test_an_unknown_name_without_confirmed_contents_is_not_a_loss() -> None:
    at = Setting()
    data = at.bound()
    at.publish(3)
    forget_the_lease(at, data)
    at.asked_for_a_lease()
    at.control.refuse(404, control.UNKNOWN_WRITER)
    at.bench.run()
    assert isinstance(at.part.error, Refused)
    assert not isinstance(at.part.error, DataLoss)


def test_a_new_lease_resends_all_unconfirmed_contents() -> None:
    at = Setting()
    data = at.bound()
    at.publish(3)
    forget_the_lease(at, data)
    assert at.asked_for_a_lease().writer == "me"
    data = at.bound(control.DataLease(port=1, lease="m", last={"a": 2}))
    assert numbers(data) == [1, 2, 3]


def test_a_new_lease_reopens_the_stage() -> None:
    at = Setting(name=None, stage=STAGE)
    data = at.bound(control.DataLease(port=1, lease="l", last={}, stage="public"))
    forget_the_lease(at, data)
    assert at.asked_for_a_lease().stage == control.StageSpec(application="app", version=3, id="public")


def test_a_writer_without_confirms_probes_its_lease() -> None:
    at = Setting()
    data = at.bound()
    at.publish()
    numbers(data)
    at.bench.run(2 * QUIET_S + 0.1)
    assert commands.Ping() in data.sent_commands()
    at.bench.run(1.5)
    [lease] = [x for x in data.sent_commands() if isinstance(x, commands.Lease)]
    data.command(commands.Response(lease.sequence, 403))
    at.bench.run()
    at.asked_for_a_lease()
    at.control.refuse(409, control.FENCED)
    at.bench.run()
    assert isinstance(at.part.error, Fenced)


def test_an_idle_writer_sends_no_probe() -> None:
    at = Setting()
    data = at.bound()
    at.bench.run(4 * QUIET_S)
    assert data.sent_commands() == []


def test_a_refused_lease_fails_the_writer() -> None:
    at = Setting()
    at.control.refuse(404, control.UNKNOWN_RESOURCE, missing=["a"])
    at.bench.run()
    assert isinstance(at.part.error, Refused)


# --- the end ------------------------------------------------------------------------------------------------


def test_close_ends_the_lease() -> None:
    at = Setting()
    data = at.bound()
    outcomes: list[Outcome] = []
    at.part.close(outcomes.append, within=1.0)
    at.bench.run()
    assert data.closed
    assert isinstance(at.control.asked(), control.LeaseClose)
    at.control.answer(control.LeaseClosed())
    at.bench.run()
    assert outcomes == [control.LeaseClosed()]
    assert isinstance(at.part.error, Closed)


def test_abandoning_a_stage_aborts_it_instead_of_closing_the_lease() -> None:
    at = Setting(name=None, stage=STAGE)
    data = at.bound(control.DataLease(port=1, lease="l", last={}, stage="public"))
    at.part.abandon(lambda _: None, within=1.0)
    at.bench.run()
    assert data.closed
    assert at.control.asked() == control.StageAbort(session="token", stages=["public"])


def test_abandoning_a_plain_writer_closes_its_lease() -> None:
    at = Setting()
    at.bound()
    at.part.abandon(lambda _: None, within=1.0)
    at.bench.run()
    assert isinstance(at.control.asked(), control.LeaseClose)


def test_without_confirmation_close_waits_for_a_pong() -> None:
    at = Setting(extended=False, confirm="none", name=None)
    data = at.bound(control.DataLease(port=1, lease="l"))
    at.publish(2)
    at.part.close(lambda _: None, within=1.0)
    at.bench.run()
    assert (list(map(type, data.sent_commands())), data.closed) == (
        [commands.Content, commands.Content, commands.Ping],
        False,
    )
    data.command(commands.Pong())
    at.bench.run()
    assert data.closed
