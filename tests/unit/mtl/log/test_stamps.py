"""Stamps of a log whose clock is wrong: their order, ages and searches by time, before and after any crash."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from mtl.errors import StorageFailed
from mtl.log.change import ChunkRef, LogOptions
from mtl.log.chunk import NewChunk
from mtl.log.limits import CLOCK_SKEW_US, LOG_SETBACKS
from mtl.log.log import rebuild_manifest
from mtl.log.manifest import MANIFEST, decode_manifest
from mtl.log.segment import segment_base
from mtl.log.stamps import Setback, above, appended_by, before, is_ahead, next_stamp, with_setback
from mtl.log.store import Store
from tests.support.faulty_disk import Crashed, FaultyDisk
from tests.support.logs import LOG, LogUnderTest

HOUR = 3_600_000_000
START = 100 * HOUR


def test_a_stamp_waits_for_a_clock_that_is_a_little_behind() -> None:
    assert next_stamp(START, START - 1) == START
    assert next_stamp(START, START + CLOCK_SKEW_US) == START + CLOCK_SKEW_US
    assert next_stamp(START, START + CLOCK_SKEW_US + 1) == START
    assert not is_ahead(START + CLOCK_SKEW_US, START)


def test_setbacks_are_sorted_and_bounded() -> None:
    setbacks = with_setback((Setback(3, 10), Setback(7, 20)), 5, 15)
    assert setbacks == (Setback(3, 10), Setback(5, 15))
    assert (before(setbacks, 5), above(setbacks, 3)) == ((Setback(3, 10),), (Setback(5, 15),))
    for first in range(10, 10 + LOG_SETBACKS):
        setbacks = with_setback(setbacks, first, first)
    assert (len(setbacks), setbacks[0]) == (LOG_SETBACKS, Setback(10, 10))


def test_contents_before_a_setback_were_appended_by_then() -> None:
    setbacks = (Setback(3, 50), Setback(5, 30))
    assert [appended_by(100, setbacks, at) for at in (1, 2, 3, 4, 5)] == [30, 30, 30, 30, 100]
    assert appended_by(20, setbacks, 1) == 20
    assert appended_by(None, setbacks, 1) is None


# --- in a log -----------------------------------------------------------------------------------------------


class Clocked(LogUnderTest):
    """A log whose clock jumps."""

    def check(self) -> None:
        refs = self.refs()
        setbacks = self.reader._setbacks
        assert setbacks == above(self.on_disk(), self.earliest)
        falls = [b.base for a, b in pairwise(refs) if b.time_us < a.time_us]
        assert set(falls) <= {setback.first for setback in setbacks}
        assert self.reader.last_time == self.writer.last_time

    def refs(self) -> list[ChunkRef]:
        found = [self.reader.snapshot().find(chunk.base) for chunk in self.visible]
        return [ref for ref in found if ref is not None]

    def on_disk(self) -> tuple[Setback, ...]:
        return Store(self.disk, LOG).manifest().setbacks


def step(log: LogUnderTest, chance: random.Random) -> None:
    log.now += chance.choice((0, 1_000, 60_000_000, 3 * HOUR, -1_000_000, -60_000_000, -2 * HOUR))
    log.now = max(log.now, START)
    kind = chance.choice(("append", "append", "append", "roll", "adopt", "copy", "trim", "mark"))
    if kind == "append":
        log.append(NewChunk(2, bytes(chance.choice((10, 700)))))
    elif kind == "roll":
        log.roll()
    elif kind == "mark":
        log.mark()
    elif kind == "trim" and len(log.held) > 3:
        log.trim(log.held[-3].base)
    elif kind in {"adopt", "copy"}:
        log.commit([[NewChunk(3, b"staged" * 20)]], adopt=kind == "adopt")


@pytest.mark.parametrize("seed", range(12))
def test_a_search_by_time_finds_what_a_scan_finds(seed: int) -> None:
    chance = random.Random(seed)
    log = Clocked(FaultyDisk(chance), LogOptions(segment_bytes=2_000))
    for _ in range(60):
        step(log, chance)
        if chance.random() < 0.1:
            log.close()
            log.open()
    log.check()
    refs, setbacks = log.refs(), log.reader._setbacks
    for us in {ref.time_us + by for ref in refs for by in (-1, 0, 1)}:
        for now in (log.now, us, us - HOUR, max(ref.time_us for ref in refs)):
            counts = [
                ref.time_us
                if is_ahead(us, now) or not is_ahead(ref.time_us, now)
                else min(ref.time_us, (appended_by(ref.time_us, setbacks, ref.base) or 0) - 1)
                for ref in refs
            ]
            expected = next((ref for ref, at in zip(refs, counts, strict=True) if at >= us), None)
            assert log.reader.snapshot().at_time(us, now) == expected


@pytest.mark.parametrize("seed", range(60))
def test_setbacks_survive_crashes_and_failures(seed: int) -> None:
    chance = random.Random(seed)
    log = Clocked(FaultyDisk(chance), LogOptions(segment_bytes=2_000))
    for _ in range(25):
        log.disk.crash_after(chance.choice((None, None, chance.randrange(12))))
        if chance.random() < 0.2:
            log.disk.fail(chance.choice(("sync", "write", "create", "fsync_dir", "rename")), nth=2)
        try:
            step(log, chance)
        except Crashed:
            log.disk.heal()
            log.crash(keep="some")
        except StorageFailed:
            log.disk.heal()
            log.disk.crash_after(None)
            if log.writer.stopped or log.record is not None:
                log.crash(power=False)
        log.disk.heal()
    log.disk.crash_after(None)
    log.crash(power=False)
    log.check()


def test_a_lost_manifest_gets_its_setbacks_from_the_segments() -> None:
    log = Clocked(FaultyDisk(random.Random(1)), LogOptions(segment_bytes=2_000))
    for hours in (9, 5, 7, 3):
        log.now = hours * HOUR
        log.append(NewChunk(1, b"x"))
    log.commit([[NewChunk(3, b"staged" * 20)]], adopt=True)
    log.now = HOUR
    log.commit([[NewChunk(3, b"staged" * 20)]], adopt=True)
    setbacks = log.on_disk()
    assert [setback.first for setback in setbacks] == [2, 4, 8]
    log.close()
    log.disk.unlink(f"{LOG}/{MANIFEST}")
    assert rebuild_manifest(log.disk, LOG, b"owner", 1)
    assert log.on_disk() == setbacks


def test_a_manifest_has_the_setbacks_until_their_segments_are_removed() -> None:
    log = Clocked(FaultyDisk(random.Random(1)))

    def stored() -> object:
        return decode_manifest(log.disk.content(f"{LOG}/{MANIFEST}"), MANIFEST).setbacks

    log.now = 9 * HOUR
    log.append(NewChunk(1, b"x"))
    assert stored() == ()
    log.now = HOUR
    log.append(NewChunk(1, b"x"))
    assert stored() == log.on_disk() != ()
    log.append(NewChunk(1, b"x"))
    log.roll()
    log.trim(log.next)
    assert stored() == ()


def test_a_log_whose_stamps_are_ahead_is_due_for_a_roll() -> None:
    log = Clocked(FaultyDisk(random.Random(1)), LogOptions(segment_age_s=10))
    log.now = 9 * HOUR
    log.append(NewChunk(1, b"x"))
    assert not log.reader.roll_due(lambda _: 0, log.now)
    log.now = HOUR
    assert log.reader.roll_due(lambda _: 0, log.now)
    log.roll()
    assert not log.reader.roll_due(lambda _: 0, log.now)
    assert [segment_base(name) for name in log.disk.list_dir(LOG) if segment_base(name)] == [1, 2]
    log.now = HOUR // 2  # the clock goes back once more: the empty segment is replaced
    log.roll()
    assert log.on_disk() == (Setback(2, log.now),)
    log.crash()
