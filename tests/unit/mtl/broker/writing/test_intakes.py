from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from mtl.broker.outbox import Outbox
from mtl.broker.writing.intake import AcceptedContents, InboundBudget
from mtl.broker.writing.intakes import Intakes
from mtl.broker.writing.turns import Turns
from mtl.errors import StorageError
from mtl.storage.api import Append, LogView
from mtl.wire.fields import EMPTY

READER = cast(LogView, SimpleNamespace(next=1, epoch=None))
SENDER = SimpleNamespace(key=1, share="", confirmed_flow=True)


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


@pytest.fixture
def intakes(outbox: Outbox) -> Intakes:
    return Intakes(outbox, InboundBudget(), Turns(2))


def add(intakes: Intakes, key: str) -> None:
    """Add a content for a log; it waits for the disk."""
    intake = intakes.create(key, READER, {})
    intake.add(AcceptedContents(SENDER, 1, 1, (b"x",), EMPTY))
    intakes.wait(intake)


def test_waiting_contents_are_written_once(outbox: Outbox, intakes: Intakes) -> None:
    add(intakes, "resources/a")
    add(intakes, "resources/b")
    intakes.start()
    assert [cast(Append, x).log for x in outbox.pop_actions()] == ["resources/a", "resources/b"]
    assert not intakes.any_waits
    intakes.start()
    assert outbox.pop_actions() == []


def test_no_contents_are_written_after_the_close(outbox: Outbox, intakes: Intakes) -> None:
    intakes.close()
    add(intakes, "resources/a")
    assert not intakes.any_waits


def test_the_loss_of_contents_is_an_event(outbox: Outbox, intakes: Intakes) -> None:
    lost: list[int] = []
    intakes.lost.leads_to(lambda accepted: lost.extend(x.last for x in accepted))
    add(intakes, "resources/a")
    intakes.start()
    (append,) = outbox.pop_actions()
    outbox.completed(cast(Append, append).id, StorageError("the disk is gone"))
    assert lost == [1]
