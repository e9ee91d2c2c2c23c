from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Self

import pytest
from benchmarks.memory import BLOCK, ENOUGH, FETCHED_S, Memory, SparseFile, fetch, settle

TOTAL = 8 * ENOUGH


class Machine:
    """Its free memory has `own` blocks of its own, then `host` blocks of the host; each read advances the time."""

    def __init__(self, own: int, host: int) -> None:
        self.own = own
        self.host = host
        self.now = 0.0

    def clock(self) -> float:
        return self.now

    def free(self) -> int:
        return (self.own + self.host) * BLOCK

    def read(self) -> None:
        self.now += FETCHED_S / 4
        if self.own:
            self.own -= 1
        elif self.host:
            self.host -= 1
            self.now += 4 * FETCHED_S


def memory(machine: Machine) -> Memory:
    return Memory(machine, TOTAL, machine.clock)


def test_all_memory_of_the_host_is_touched() -> None:
    machine = Machine(own=3, host=100)
    assert memory(machine).settle() == 103 * BLOCK
    assert machine.host == 0


def test_without_memory_of_the_host_few_blocks_are_read() -> None:
    machine = Machine(own=10_000, host=0)
    assert memory(machine).settle() == ENOUGH


def test_used_memory_is_not_touched() -> None:
    machine = Machine(own=5, host=0)
    assert memory(machine).settle() == 5 * BLOCK


def test_after_fetched_memory_every_check_covers_the_whole_memory() -> None:
    machine = Machine(own=0, host=1)
    found = memory(machine)
    found.settle()
    machine.own, machine.host = 2 * ENOUGH // BLOCK, 5  # freed meanwhile: the older part is the host's again
    found.settle()
    assert machine.host == 0


def test_a_check_of_always_slow_memory_is_bounded() -> None:
    machine = Machine(own=0, host=sys.maxsize)
    assert memory(machine).settle() == TOTAL


def test_a_sparse_file_is_read_cyclically_and_has_no_name(tmp_path: Path) -> None:
    holes = SparseFile(tmp_path, 2 * BLOCK)
    for _ in range(5):
        holes.read()
    assert not list(tmp_path.iterdir())
    assert holes.free() > 0
    holes.close()


def test_pending_writes_are_synced_before_a_side_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []
    monkeypatch.setattr(os, "sync", lambda: happened.append("synced"))
    settle()
    assert happened == []  # nothing is measured

    machine = Machine(own=10, host=0)
    monkeypatch.setattr(machine, "read", lambda: happened.append("touched"))
    monkeypatch.setattr("benchmarks.memory._here", [memory(machine)])
    settle()
    assert happened[:2] == ["synced", "touched"]


class Segment:
    """A file of this size in octets; -1 for one that is removed before it is opened."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.left = size

    def open(self, _mode: str, *, buffering: int) -> Segment:
        assert not buffering
        if self._size < 0:
            raise FileNotFoundError
        return self

    def readinto(self, block: bytearray) -> int:
        read = min(len(block), self.left)
        self.left -= read
        return read

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def test_segments_are_read_completely_before_a_read_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    segments: list[Any] = [Segment(2 * BLOCK + 1), Segment(-1), Segment(0), Segment(1)]
    fetch(segments)
    assert [x.left for x in segments] == [2 * BLOCK + 1, -1, 0, 1]  # nothing is measured

    monkeypatch.setattr("benchmarks.memory._here", [memory(Machine(own=0, host=0))])
    fetch(segments)
    assert [x.left for x in segments] == [0, -1, 0, 0]
