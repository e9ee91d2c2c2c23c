from __future__ import annotations

import dataclasses

import pytest

from mtl.log.change import ChunkRef, LogOptions, Trimmed


def test_a_chunk_ends_before_the_next_one_begins() -> None:
    ref = ChunkRef(base=5, count=3, time_us=0, size=10, stored=128, segment=1, offset=64, place=0)
    assert ref.end == 8


def test_by_default_nothing_is_acknowledged_before_it_is_synced() -> None:
    assert LogOptions().durability == "sync"
    assert LogOptions().segment_age_s is None


def test_what_goes_between_threads_does_not_change() -> None:
    change = Trimmed(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        change.earliest = 2  # type: ignore[misc]
