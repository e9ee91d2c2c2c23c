from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Self

import pytest
from benchmarks.memory import BLOCK, ENOUGH, FETCHED_S, Memory, SparseFile, fetch, settle

TOTAL = 8 * ENOUGH


class Machine:
    """`host` blocks of its free memory are the host's, behind `own` of its own; time passes by reading."""

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


def test_all_that_has_to_be_fetched_is_touched() -> None:
    machine = Machine(own=3, host=100)
    assert memory(machine).settle() == 103 * BLOCK
    assert machine.host == 0


def test_where_nothing_has_to_be_fetched_little_is_looked_at() -> None:
    machine = Machine(own=10_000, host=0)
    assert memory(machine).settle() == ENOUGH


def test_what_is_in_use_is_left_alone() -> None:
    machine = Machine(own=5, host=0)
    assert memory(machine).settle() == 5 * BLOCK


def test_a_machine_that_fetched_once_is_looked_at_whole_from_then_on() -> None:
    machine = Machine(own=0, host=1)
    found = memory(machine)
    found.settle()
    machine.own, machine.host = 2 * ENOUGH // BLOCK, 5  # freed meanwhile: the older part is the host's again
    found.settle()
    assert machine.host == 0


def test_a_machine_whose_memory_is_always_slow_is_not_looked_at_for_ever() -> None:
    machine = Machine(own=0, host=sys.maxsize)
    assert memory(machine).settle() == TOTAL


def test_holes_are_read_round_and_round_and_have_no_name(tmp_path: Path) -> None:
    holes = SparseFile(tmp_path, 2 * BLOCK)
    for _ in range(5):
        holes.read()
    assert not list(tmp_path.iterdir())
    assert holes.free() > 0
    holes.close()


def test_what_others_wrote_is_on_the_disk_before_a_side_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
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
    """A file of so many octets; -1 for one that is gone by the time it is opened."""

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


def test_what_is_about_to_be_read_is_read_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    segments: list[Any] = [Segment(2 * BLOCK + 1), Segment(-1), Segment(0), Segment(1)]
    fetch(segments)
    assert [x.left for x in segments] == [2 * BLOCK + 1, -1, 0, 1]  # nothing is measured

    monkeypatch.setattr("benchmarks.memory._here", [memory(Machine(own=0, host=0))])
    fetch(segments)
    assert [x.left for x in segments] == [0, -1, 0, 0]
