from __future__ import annotations

import pytest

from mtl.client.reader_part import ReaderPart
from mtl.errors import Closed, Refused
from mtl.protocol.reading import Delivery, PlainRun
from mtl.wire import commands, control
from mtl.wire.fields import EMPTY
from tests.support.memory_network import Bench
from tests.unit.mtl.client.test_log_reader_part import OPTIONS


class Bare(ReaderPart):
    """Incoming contents without the parts of a reader."""

    def finish(self, done: Delivery | PlainRun) -> None: ...

    def credit(self) -> None: ...

    def confirm(self, sequence: int, log_epoch: str | None = None) -> None: ...

    def lease_request(self) -> control.ConnectionReader:
        return control.ConnectionReader(resources=["a"])

    def _has_unacknowledged_confirm(self) -> bool:
        return False


@pytest.fixture
def incoming() -> ReaderPart:
    bench = Bench()
    return Bare(bench.loop, bench.channel, OPTIONS)


def test_the_base_class_has_no_positions(incoming: ReaderPart) -> None:
    assert (incoming.start, incoming.log_epoch(7), incoming.rfc) == (None, None, False)


def test_arrived_contents_are_queued_with_one_notification(incoming: ReaderPart) -> None:
    received: list[int] = []
    incoming.listener = lambda: received.append(len(incoming.queue))
    run = PlainRun(1, 2, commands.Content(1, "a", EMPTY, b""), [b""], 0)
    incoming._arrived += [run, run]
    incoming.drained()
    incoming.drained()
    assert (list(incoming.queue), received) == ([run, run], [2])


def test_a_refused_summon_is_an_error(incoming: ReaderPart) -> None:
    received: list[int] = []
    incoming.listener = lambda: received.append(1)
    incoming.answered(commands.Summon(1, "a"), ok=False)
    first = incoming.error
    assert received == [1]
    assert isinstance(first, Refused)
    incoming.failed(Closed("later"))
    assert incoming.error is first


def test_a_refused_dismiss_is_ignored(incoming: ReaderPart) -> None:
    incoming.answered(commands.Dismiss(1, "a"), ok=False)
    assert incoming.error is None
