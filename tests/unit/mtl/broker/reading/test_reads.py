"""Reads of logs: answered at once from memory, or later from the disk."""

from __future__ import annotations

import pytest

from mtl.broker.reading.reads import Reads
from mtl.broker.steps import begin
from mtl.broker.writing.resource import Resource
from mtl.errors import Refused, StorageFailed
from mtl.storage.api import Contents, RangeFrom, Read, Trim
from mtl.wire import control
from tests.support.core import Rig


@pytest.fixture
def rig() -> Rig:
    return Rig(segment_bytes=1_200)


@pytest.fixture
def resource(rig: Rig) -> Resource:
    """Six contents of 1,000 octets in segments of their own, none in memory."""
    client = rig.client()
    client.create("a")
    for n in range(6):
        client.fill("a", [bytes([n]) * 1_000])
    rig.restart()
    return rig.broker.parts.resources.need("/", "a")


@pytest.fixture
def reads(rig: Rig, resource: Resource) -> Reads:
    return Reads(rig.broker.parts.outbox)


def test_a_read_from_memory_is_answered_at_once(rig: Rig, resource: Resource, reads: Reads) -> None:
    rig.client().fill("a", [b"new"])
    answer = begin(reads.ask(resource, Contents(7, 8, octets=0, most=1)))
    assert answer.value[0].ref.base == 7
    assert rig.broker.pop_actions() == []


def test_a_read_of_cold_contents_is_an_action(rig: Rig, resource: Resource, reads: Reads) -> None:
    answer = begin(reads.ask(resource, RangeFrom(1, contents=2)))
    assert not answer.is_known
    rig.run()
    assert answer.value.end == 3


def test_answers_of_several_reads_arrive_together_in_order(
    rig: Rig, resource: Resource, reads: Reads
) -> None:
    rig.client().fill("a", [b"new"])
    answers = begin(reads.ask_all([(resource, RangeFrom(n, contents=1)) for n in (3, 7, 1)]))
    assert not answers.is_known
    rig.run()
    assert [x and x.end for x in answers.value] == [4, 8, 2]
    assert begin(reads.ask_all([])).value == []


def test_a_failed_read_raises_its_error(rig: Rig, resource: Resource, reads: Reads) -> None:
    rig.disk.fail("read", count=100)
    answer = begin(reads.ask(resource, RangeFrom(1)))
    several = begin(reads.ask_all([(resource, RangeFrom(1))]))
    rig.run()
    assert isinstance(answer.error, StorageFailed)
    assert several.value == [None]


def test_a_read_of_contents_removed_meanwhile_is_repeated(rig: Rig, resource: Resource, reads: Reads) -> None:
    assert resource.log is not None
    rig.hold(Read)
    answer = begin(reads.ask(resource, Contents(1, 7, octets=0, most=1)))
    rig.run()
    begin(rig.broker.parts.resources.trimmed(resource, 4)).when_known(lambda: resource.intake.trim(4))
    resource.intake.change(lambda number: Trim(number, resource.intake.key, 4))
    rig.run()
    rig.let_go()
    assert [chunk.ref.base for chunk in answer.value] == [4]


def test_contents_that_could_not_be_read_are_read_again(rig: Rig, resource: Resource, reads: Reads) -> None:
    assert begin(reads.check(resource, 1)).error is None, "nothing is known against them"
    resource.add_unread(1, 2, StorageFailed("Input/output error"))
    rig.disk.fail("read", count=100, when=lambda path: path.endswith(".segment"))
    failed = begin(reads.check(resource, 1))
    rig.run()
    assert isinstance(failed.error, Refused)
    assert (failed.error.status, failed.error.reason) == (503, control.STORAGE)
    assert "cannot be read from 1" in failed.error.message
    assert resource.trouble is not None
    rig.disk.heal()
    again = begin(reads.check(resource, 1))
    rig.run()
    assert again.is_known
    assert again.error is None
    assert resource.trouble is None
