"""The `queue` profile's declaration (PROTOCOL.md 6)."""

from __future__ import annotations

import pytest

from mtl.profiles import LOG, QUEUE, CommandClass


def test_it_shares_durable_resources_with_log() -> None:
    assert QUEUE.durable
    assert QUEUE.confirms == LOG.confirms
    assert QUEUE.fixed_resources == ()


@pytest.mark.requirement("MTL-46")
def test_its_readers_compete_for_any_number_of_resources() -> None:
    assert QUEUE.competing
    assert QUEUE.any_reader
    assert not LOG.competing


def test_it_has_no_cursors() -> None:
    assert QUEUE.classes == {CommandClass.DURABLE}
