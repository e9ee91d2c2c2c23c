"""Reads of logs: answered at once from memory, or later from the disk."""

from __future__ import annotations

from typing import Any

import pytest

from mtl.broker.reading.reads import Reads
from mtl.broker.writing.resource import Resource
from mtl.errors import Refused, StorageFailed
from mtl.storage.api import Contents, Range, RangeFrom, Read, Trim
from mtl.wire import control as w
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
    answers: list[Any] = []
    reads.ask(resource, Contents(7, 8, octets=0, most=1), answers.append)
    assert answers[0][0].ref.base == 7
    assert rig.broker.pop_actions() == []


def test_a_read_of_cold_contents_is_an_action(rig: Rig, resource: Resource, reads: Reads) -> None:
    answers: list[Any] = []
    reads.ask(resource, RangeFrom(1, contents=2), answers.append)
    assert answers == []
    rig.run()
    assert isinstance(answers[0], Range)
    assert answers[0].end == 3


def test_answers_of_several_reads_arrive_together_in_order(
    rig: Rig, resource: Resource, reads: Reads
) -> None:
    rig.client().fill("a", [b"new"])
    answers: list[Any] = []
    reads.ask_all([(resource, RangeFrom(n, contents=1)) for n in (3, 7, 1)], answers.append)
    assert answers == []
    rig.run()
    assert [x.end for x in answers[0]] == [4, 8, 2]
    reads.ask_all([], answers.append)
    assert answers[1] == []


def test_a_failed_read_is_answered_with_its_error(rig: Rig, resource: Resource, reads: Reads) -> None:
    rig.disk.fail("read", count=100)
    answers: list[Any] = []
    reads.ask(resource, RangeFrom(1), answers.append)
    rig.run()
    assert isinstance(answers[0], StorageFailed)


def test_a_failed_read_refuses_its_request(rig: Rig, resource: Resource, reads: Reads) -> None:
    rig.disk.fail("read", count=100)
    refused: list[Refused] = []
    reads.request(resource, RangeFrom(1), refused.append, lambda _: pytest.fail("answered"))
    rig.run()
    assert [(x.status, x.reason) for x in refused] == [(503, w.STORAGE)]


def test_a_refusal_raised_on_the_answer_refuses_the_request(
    rig: Rig, resource: Resource, reads: Reads
) -> None:
    def then(_: Any) -> None:
        raise Refused(409, w.IN_USE, "no")

    refused: list[Refused] = []
    reads.request(resource, RangeFrom(1), refused.append, then)
    rig.run()
    assert [x.status for x in refused] == [409]


def test_a_read_of_contents_removed_meanwhile_is_repeated(rig: Rig, resource: Resource, reads: Reads) -> None:
    assert resource.log is not None
    rig.hold(Read)
    answers: list[Any] = []
    reads.ask(resource, Contents(1, 7, octets=0, most=1), answers.append)
    rig.run()
    rig.broker.parts.resources.trimmed(resource, 4, lambda _: resource.intake.trim(4))
    resource.intake.change(lambda number: Trim(number, resource.intake.key, 4), lambda _: None)
    rig.run()
    rig.let_go()
    assert [chunk.ref.base for chunk in answers[0]] == [4]


def test_contents_that_could_not_be_read_are_read_again(rig: Rig, resource: Resource, reads: Reads) -> None:
    outcomes: list[Refused | None] = []
    reads.check(resource, 1, outcomes.append)
    assert outcomes == [None], "nothing is known against them"
    resource.add_unread(1, 2, StorageFailed("Input/output error"))
    rig.disk.fail("read", count=100, when=lambda path: path.endswith(".segment"))
    reads.check(resource, 1, outcomes.append)
    rig.run()
    assert outcomes[1] is not None
    assert "cannot be read from 1" in outcomes[1].message
    assert resource.trouble is not None
    rig.disk.heal()
    reads.check(resource, 1, outcomes.append)
    rig.run()
    assert outcomes[2] is None
    assert resource.trouble is None
