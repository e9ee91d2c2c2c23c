from __future__ import annotations

import dataclasses

import pytest

from mtl.log.change import ChunkRef, LogOptions, Trimmed


def test_the_end_of_a_chunk_is_its_base_plus_its_count() -> None:
    ref = ChunkRef(base=5, count=3, time_us=0, size=10, stored=128, segment=1, offset=64, place=0)
    assert ref.end == 8


def test_the_default_durability_is_sync() -> None:
    assert LogOptions().durability == "sync"
    assert LogOptions().segment_age_s is None


def test_changes_are_immutable() -> None:
    change = Trimmed(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        change.earliest = 2  # type: ignore[misc]
