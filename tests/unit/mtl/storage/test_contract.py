"""The contract of `mtl.storage.api`: every engine passes the same cases, the faulty twin included."""

from __future__ import annotations

import contextlib
import random
from pathlib import Path

import pytest

from mtl.errors import StorageError
from mtl.storage.api import (
    Append,
    ByTime,
    Contents,
    DropLogs,
    ForgetWriters,
    LogOptions,
    Mark,
    NewChunk,
    NewestTime,
    NotInMemory,
    OpenLog,
    Prepare,
    Range,
    RangeFrom,
    Read,
    Roll,
    RunEntry,
    Save,
    Trim,
)
from mtl.storage.keys import log_key
from mtl.storage.records import CursorRecord, ResourceRecord, StageRecord, WriterRecord
from mtl.wire.packs import encode_pack, trust_pack, unpack
from tests.support.engines import PLACES, Caller, chunks, contents, plain, trimmed

SECOND = 1_000_000


@pytest.fixture(params=PLACES)
def caller(request: pytest.FixtureRequest, tmp_path: Path) -> Caller:
    return Caller(PLACES[request.param](tmp_path))


def cursor(position: int, group: str = "g") -> CursorRecord:
    return CursorRecord("/", group, "a", "i-a", position)


# --- contents -----------------------------------------------------------------------------------------------


def test_contents_are_read_in_order_with_sequences_and_times(caller: Caller) -> None:
    a = caller.resource("a")
    caller.append(a, plain(b"1", b"2"), plain(b"3"))
    caller.now_us += SECOND
    caller.append(a, plain(b"4"))
    start = caller.now_us - SECOND
    assert contents(caller.views[a]) == [
        (1, start, b"1"),
        (2, start, b"2"),
        (3, start, b"3"),
        (4, start + SECOND, b"4"),
    ]
    assert (caller.views[a].earliest, caller.views[a].next, caller.views[a].contents) == (1, 5, 4)
    assert caller.views[a].last_time == start + SECOND


def test_a_pack_is_stored_unchanged_and_plain_contents_are_packed(caller: Caller) -> None:
    a = caller.resource("a")
    pack = bytes(encode_pack((b"1", b"2"), None, 1 << 20))
    chunk = NewChunk(2, pack)
    assert caller.perform(Prepare(chunk)) is None
    caller.append(a, chunk, plain(b"3"))
    ref, body, place = chunks(caller.views[a])[0]
    assert (bytes(body), place) == (pack, None)
    assert (ref.base, ref.count, ref.end, ref.size) == (1, 2, 3, len(pack))
    assert caller.bodies(a) == [b"1", b"2", b"3"]


def test_a_change_is_visible_only_after_its_answer_is_applied(caller: Caller) -> None:
    a = caller.resource("a")
    changes = caller.perform(Append(caller.id(), a, (plain(b"1"),), caller.now_us))
    assert (caller.views[a].next, chunks(caller.views[a])) == (1, [])
    for change in changes:
        caller.views[a].apply(change)
    assert caller.bodies(a) == [b"1"]


def test_times_of_a_log_do_not_decrease(caller: Caller) -> None:
    a = caller.resource("a")
    caller.append(a, plain(b"1"))
    caller.now_us -= 5 * SECOND
    caller.append(a, plain(b"2"))
    times = [time for _, time, _ in contents(caller.views[a])]
    assert times == sorted(times)


def test_after_a_clock_that_was_ahead_times_are_those_of_the_clock(caller: Caller) -> None:
    a, start = caller.resource("a"), caller.now_us
    caller.append(a, plain(b"1"))
    caller.now_us = start + 3600 * SECOND
    caller.append(a, plain(b"2"))
    for n in (1, 2):
        caller.now_us = start + n * SECOND
        caller.append(a, plain(b"%d" % (n + 2)))
    for _ in ("as it is", "opened again"):
        times = [time - start for _, time, _ in contents(caller.views[a])]
        assert times == [0, 3600 * SECOND, SECOND, 2 * SECOND]
        assert caller.views[a].last_time == caller.now_us
        newest = {info.base: info.newest_time for info in caller.views[a].segments()}
        assert newest[max(base for base in newest if base <= 2)] in {start + SECOND, None}
        asked = [ByTime(start + us, caller.now_us) for us in (0, 1, SECOND, SECOND + 1, 3 * SECOND)]
        found = [caller.ask(a, query) for query in asked]
        assert [None if ref is None else ref.base for ref in found] == [1, 2, 3, 4, None]
        # Once the clock has caught up the stamp may be right: nothing with a later stamp is left out.
        ref = caller.ask(a, ByTime(start + 3 * SECOND, start + 3600 * SECOND))
        assert ref.base == 2
        caller.reopen()


def test_a_clock_that_was_ahead_is_noted_without_contents(caller: Caller) -> None:
    a, start = caller.resource("a"), caller.now_us
    caller.now_us += 3600 * SECOND
    caller.append(a, plain(b"1"))
    caller.now_us = start
    view = caller.views[a]
    for change in caller.perform(Roll(caller.id(), a, caller.now_us)):
        view.apply(change)
    assert not view.roll_due(lambda _: 0, caller.now_us)
    assert next(view.segments()).newest_time == start
    assert caller.ask(a, ByTime(start + 1, caller.now_us)) is None


def test_a_chunk_that_does_not_fit_is_refused_and_the_log_continues(caller: Caller) -> None:
    a = caller.resource("a")
    caller.append(a, plain(b"1"))
    too_many_runs = tuple(RunEntry(n, 1, 1) for n in range(1 << 16))
    assert isinstance(caller.append(a, NewChunk(1, b"", too_many_runs)), StorageError)
    caller.append(a, plain(b"2"))
    assert caller.bodies(a) == [b"1", b"2"]


def test_chunks_are_found_by_sequence(caller: Caller) -> None:
    a = caller.resource("a")
    for n in range(5):
        caller.append(a, plain(b"%d" % n, b"%d" % n))  # chunks begin at 1, 3, 5, 7, 9
        caller.now_us += SECOND
    start, view = caller.now_us - 5 * SECOND, caller.views[a]
    assert [caller.bases(a, n)[:1] for n in (0, 1, 2, 3, 10, 11)] == [[1], [1], [1], [3], [9], []]
    times = [caller.ask(a, ByTime(start + n, caller.now_us)) for n in (-1, 0, 1, SECOND, 5 * SECOND)]
    assert [None if ref is None else ref.base for ref in times] == [1, 1, 3, 3, None]
    first, second = (chunk.ref for chunk in chunks(view)[:2])
    both = first.stored + second.stored
    assert caller.ask(a, RangeFrom(1, contents=2)) == Range(3, first.stored, start)
    assert caller.ask(a, RangeFrom(1, octets=both)) == Range(5, both, start)
    assert caller.ask(a, RangeFrom(1, contents=3, octets=both)) == Range(4, both, start)
    assert caller.ask(a, RangeFrom(1, octets=1)) == Range(3, first.stored, start)
    assert caller.ask(a, RangeFrom(2, contents=4)).end == 6
    assert caller.ask(a, RangeFrom(4)).time_us == start + SECOND
    assert caller.ask(a, RangeFrom(99)) == Range(99, 0, None)
    whole = caller.ask(a, RangeFrom(1))
    assert whole.end == 11
    assert view.bytes >= whole.octets > 0


def test_bodies_are_read(caller: Caller) -> None:
    a = caller.resource("a")
    for n in range(5):
        caller.append(a, plain(bytes([n]) * 100))

    def bases(query: Contents) -> list[int]:
        return [chunk.ref.base for chunk in caller.ask(a, query)]

    (chunk,) = caller.ask(a, Contents(2, 3, octets=1 << 20, most=10))
    assert chunk.body.readonly
    assert [bytes(body) for _, body in unpack(trust_pack(chunk.body))] == [b"\1" * 100]
    size = chunk.ref.size
    assert bases(Contents(2, 6, octets=1 << 20, most=10)) == [2, 3, 4, 5]
    assert bases(Contents(2, 6, octets=0, most=10)) == [2]
    assert bases(Contents(2, 6, octets=2 * size, most=10)) == [2, 3]
    assert bases(Contents(2, 6, octets=1 << 20, most=3)) == [2, 3, 4]
    assert bases(Contents(6, 9, octets=1 << 20, most=3)) == []


def test_a_snapshot_does_not_change_with_the_log(caller: Caller) -> None:
    a = caller.resource("a")
    caller.append(a, plain(b"1"))
    older = caller.views[a].snapshot()
    caller.append(a, plain(b"2"))
    everything = Contents(1, 9, octets=1 << 20, most=10)
    assert len(caller.perform(Read(caller.id(), a, older, everything))) == 1
    assert caller.perform(Read(caller.id(), a, older, RangeFrom(1))).end == 2
    assert len(caller.ask(a, everything)) == 2


def test_contents_in_memory_equal_those_read(caller: Caller) -> None:
    """An engine may keep no contents in memory; those that it has there must be correct."""
    a = caller.resource("a")
    for n in range(30):
        caller.append(a, plain(bytes([n]) * 1000))
    caller.reopen()
    caller.append(a, plain(b"newest"))
    view = caller.views[a]
    for sequence in range(32):
        chunk = view.tail(sequence)
        if chunk is not None:
            (read,) = caller.ask(a, Contents(sequence, sequence + 1, octets=0, most=1))
            assert (read.ref, bytes(read.body)) == (chunk.ref, bytes(chunk.body))
        for query in (RangeFrom(sequence, 3), ByTime(sequence, caller.now_us), NewestTime(sequence)):
            with contextlib.suppress(NotInMemory):
                assert view.answer_from_memory(query) == caller.ask(a, query)


def test_an_empty_log_has_no_contents(caller: Caller) -> None:
    a = caller.resource("a")
    view = caller.views[a]
    assert (view.earliest, view.next, view.contents, view.history) == (1, 1, 0, ())
    assert (view.tail(1), chunks(view), caller.ask(a, ByTime(0, caller.now_us))) == (None, [], None)
    assert caller.ask(a, RangeFrom(1)) == Range(1, 0, None)


# --- restarts -----------------------------------------------------------------------------------------------


def test_logs_and_records_survive_a_restart(caller: Caller) -> None:
    a, b = caller.resource("a"), caller.resource("b")
    caller.append(a, plain(b"1", b"2", writer=7, first=1))
    caller.append(a, plain(b"3", writer=7, first=3), plain(b"4", writer=8, first=1))
    before = contents(caller.views[a])
    caller.reopen()
    assert contents(caller.views[a]) == before
    assert caller.bodies(b) == []
    assert caller.numbers == {a: {7: 3, 8: 1}, b: {}}
    caller.append(a, plain(b"5"))
    assert caller.bodies(a) == [b"1", b"2", b"3", b"4", b"5"]


def test_the_epoch_of_a_run_starts_with_its_first_contents(caller: Caller) -> None:
    a = caller.resource("a")
    first = caller.views[a].epoch
    caller.append(a, plain(b"1", b"2"))
    caller.append(a, plain(b"3"))
    assert caller.views[a].history == ((1, first),)
    caller.reopen()
    second = caller.views[a].epoch
    assert second not in {first, None}
    assert caller.views[a].history == ((1, first),)
    caller.append(a, plain(b"4"))
    caller.reopen()
    view = caller.views[a]
    assert view.history == ((1, first), (4, second))
    assert [view.epoch_of(n) for n in (1, 3, 4)] == [first, first, second]
    assert caller.views[caller.stage("s", "a")[0]].epoch is None


def test_records_are_saved_and_removed_in_one_transaction(caller: Caller) -> None:
    assert caller.save(cursor(1), cursor(2, "h"), WriterRecord("/", "w", 7, 1)) is None
    assert caller.save(cursor(5), forget=(cursor(2, "h"),)) is None
    assert caller.save(forget=(cursor(9, "nobody"),)) is None
    caller.reopen()
    assert set(caller.restored.records) == {cursor(5), WriterRecord("/", "w", 7, 1)}


def test_a_log_without_record_is_removed_at_the_next_start(caller: Caller) -> None:
    a = caller.resource("a")
    stage = caller.stage("s", "a")
    assert caller.save(forget=(StageRecord("/", "s", "app", 1, {"a": "i-a"}, caller.now_us),)) is None
    caller.reopen()
    record = StageRecord("/", "s", "app", 1, {"a": "i-a"}, caller.now_us)
    assert caller.open_log(stage[0], record) is None
    assert caller.bodies(a) == []


def test_dropped_logs_are_removed(caller: Caller) -> None:
    a, b = caller.resource("a"), caller.resource("b")
    caller.append(a, plain(b"1"))
    caller.append(b, plain(b"2"))
    caller.drop(ResourceRecord("/", "a", "i-a", "l-a"))
    caller.reopen()
    assert set(caller.views) == {b}
    assert caller.bodies(b) == [b"2"]
    missing = caller.open_log("resources/l-a", ResourceRecord("/", "a", "i-a", "l-a"))
    assert isinstance(missing, StorageError)


def test_dropping_a_missing_log_has_no_effect(caller: Caller) -> None:
    assert caller.perform(DropLogs(("resources/nothing", "stages/nothing/0"))) is None


def test_a_staged_log_that_was_never_created(caller: Caller) -> None:
    opened = caller.perform(OpenLog(caller.id(), "stages/s/0", LogOptions(), None, None, None, caller.now_us))
    assert opened is None


# --- commits ------------------------------------------------------------------------------------------------


def test_staged_contents_are_published_in_order(caller: Caller) -> None:
    a = caller.resource("a")
    caller.append(a, plain(b"0"))
    (first,), (second,) = caller.stage("s1", "a"), caller.stage("s2", "a")
    caller.append(first, plain(b"1", b"2", writer=0), plain(b"3"))
    caller.append(second, plain(b"4"))
    caller.now_us += SECOND
    caller.publish(a, 2, 4, first, second)
    assert caller.bodies(a) == [b"0", b"1", b"2", b"3", b"4"]
    assert {time for sequence, time, _ in contents(caller.views[a]) if sequence > 1} == {caller.now_us}
    before = contents(caller.views[a])
    for name in ("s1", "s2"):
        caller.drop(StageRecord("/", name, "app", 1, {"a": "i-a"}, 0))
    caller.append(a, plain(b"5"))
    caller.reopen()
    assert contents(caller.views[a])[:5] == before
    assert caller.bodies(a)[5:] == [b"5"]


def test_a_large_stage_is_published(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtl.storage.limits.ADOPT_OCTETS", 1)
    a = caller.resource("a")
    (staged,) = caller.stage("s1", "a")
    bodies = [bytes([n]) * 1000 for n in range(20)]
    for body in bodies:
        caller.append(staged, plain(body))
    caller.publish(a, 1, 20, staged)
    assert caller.bodies(a) == bodies
    caller.drop(StageRecord("/", "s1", "app", 1, {"a": "i-a"}, 0))
    caller.reopen()
    assert caller.bodies(a) == bodies


def test_a_publication_is_atomic(caller: Caller) -> None:
    a = caller.resource("a")
    (staged,) = caller.stage("s1", "a")
    caller.append(staged, plain(b"1", b"2"))
    assert isinstance(caller.publish(a, 1, 3, staged), StorageError)
    assert caller.bodies(a) == []
    caller.publish(a, 1, 2, staged)
    assert caller.bodies(a) == [b"1", b"2"]


def test_a_publication_may_be_repeated(caller: Caller) -> None:
    a = caller.resource("a")
    caller.append(a, plain(b"0"))
    (staged,) = caller.stage("s1", "a")
    caller.append(staged, plain(b"1", b"2"))
    for _ in range(3):
        caller.publish(a, 2, 2, staged)
        assert caller.bodies(a) == [b"0", b"1", b"2"]


def test_an_interrupted_publication_is_invisible_and_redone(caller: Caller) -> None:
    a = caller.resource("a")
    caller.append(a, plain(b"0"))
    (staged,) = caller.stage("s1", "a")
    caller.append(staged, plain(b"1", b"2"))
    caller.publish(a, 2, 2, staged)
    caller.reopen({a: 2})
    assert caller.bodies(a) == [b"0"]
    caller.publish(a, 2, 2, staged)
    assert caller.bodies(a) == [b"0", b"1", b"2"]
    epochs = [first for first, _ in caller.views[a].history]
    caller.reopen()
    assert caller.bodies(a) == [b"0", b"1", b"2"]
    assert [first for first, _ in caller.views[a].history] == epochs


def test_a_commit_inside_a_chunk_is_refused(caller: Caller) -> None:
    a = caller.resource("a")
    caller.append(a, plain(b"1", b"2"))
    (staged,) = caller.stage("s1", "a")
    caller.append(staged, plain(b"3"))
    assert isinstance(caller.publish(a, 2, 1, staged), StorageError)
    assert caller.bodies(a) == [b"1", b"2"]


# --- retention ----------------------------------------------------------------------------------------------


def test_trimmed_contents_are_invisible_and_their_space_is_freed(caller: Caller) -> None:
    a = caller.resource("a")
    for n in range(30):
        caller.append(a, plain(bytes([n]) * 1000))
    view = caller.views[a]
    segments = list(view.segments())
    assert len(segments) > 3
    assert sum(s.bytes for s in segments) == view.bytes
    assert [s.base for s in segments[1:]] == [s.end for s in segments[:-1]]
    older, old, kept = view.snapshot(), chunks(view)[0], segments[2].end
    assert caller.ask(a, NewestTime(segments[0].base)) == caller.now_us
    assert next(view.segments()).newest_time == caller.now_us
    record = ResourceRecord("/", "a", "i-a", "l-a")
    assert caller.save(trimmed(record, kept)) is None
    before = view.bytes
    view.trim(kept)
    view.trim(1)  # hidden contents stay hidden
    assert (view.earliest, view.tail(kept - 1), caller.bases(a, 1)[0]) == (kept, None, kept)
    caller.change(a, Trim(caller.id(), a, kept))
    found = caller.perform(Read(caller.id(), a, older, Contents(1, 2, octets=0, most=1)))
    if not isinstance(found, StorageError):  # an engine may still have it
        assert found[0] == old
    assert view.bytes < before
    assert len(caller.bodies(a)) == 31 - kept
    assert bytes(old.body).find(bytes(1000)) >= 0  # bodies already read stay valid
    caller.reopen()
    assert caller.views[a].earliest == kept
    assert len(caller.bodies(a)) == 31 - kept


def test_an_unfinished_trim_is_finished_at_the_next_opening(caller: Caller) -> None:
    a = caller.resource("a")
    for n in range(30):
        caller.append(a, plain(bytes([n]) * 1000))
    kept = list(caller.views[a].segments())[2].end
    assert caller.save(trimmed(ResourceRecord("/", "a", "i-a", "l-a"), kept)) is None
    caller.reopen()
    assert caller.views[a].earliest == kept


def test_all_contents_may_be_trimmed(caller: Caller) -> None:
    """As in a truncating commit without contents."""
    a = caller.resource("a")
    caller.append(a, plain(b"1"), plain(b"2"))
    caller.views[a].trim(3)
    caller.change(a, Trim(caller.id(), a, 3))
    assert caller.bodies(a) == []
    caller.append(a, plain(b"3"))
    assert contents(caller.views[a])[0][0] == 3


def test_roll_mark_and_forget_change_no_contents(caller: Caller) -> None:
    a = caller.resource("a")
    caller.append(a, plain(b"1", writer=7, first=1), plain(b"2", writer=8, first=1))
    assert caller.perform(Mark(caller.id(), a)) is True
    caller.change(a, ForgetWriters(caller.id(), a, (7, 99)))
    caller.change(a, Roll(caller.id(), a, caller.now_us))
    caller.change(a, Roll(caller.id(), a, caller.now_us))
    caller.append(a, plain(b"3"))
    caller.reopen()
    assert caller.bodies(a) == [b"1", b"2", b"3"]
    assert caller.numbers[a] in ({8: 1}, {7: 1, 8: 1})  # numbers of forgotten writers may stay


# --- batches, lanes, the outside ----------------------------------------------------------------------------


def test_the_results_of_a_batch_are_in_order(caller: Caller) -> None:
    a, b, c = (caller.resource(name) for name in ("a", "b", "c"))
    batch = (
        Append(caller.id(), a, (plain(b"1"),), caller.now_us),
        Append(caller.id(), b, (plain(b"2"),), caller.now_us),
        Append(caller.id(), c, (NewChunk(0, b""),), caller.now_us),
    )
    assert len({caller.engine.lane(action) for action in batch}) == 1
    ours, theirs, failed = caller.engine.perform(batch)
    for key, changes in ((a, ours), (b, theirs)):
        for change in changes:  # type: ignore[attr-defined]
            caller.views[key].apply(change)
    assert (caller.bodies(a), caller.bodies(b)) == ([b"1"], [b"2"])
    assert isinstance(failed, StorageError)
    records = (Save(caller.id(), (cursor(1),)), Save(caller.id(), (cursor(2),)), DropLogs(("stages/x/0",)))
    assert list(caller.engine.perform(records)) == [None, None, None]
    caller.reopen()
    assert cursor(2) in caller.restored.records


def test_saves_and_removals_have_lanes_with_one_thread(caller: Caller) -> None:
    assert caller.engine.lane(Save(1, ())).threads == 1
    assert caller.engine.lane(DropLogs(())).threads == 1


def test_free_space_is_observed(caller: Caller) -> None:
    observation = caller.engine.observe()
    assert observation.free is not None
    assert 0 < observation.free <= observation.total
    assert observation.users is None


def test_closing_names_each_log_before_it_is_closed(caller: Caller) -> None:
    a = caller.resource("a")
    caller.append(a, plain(b"1"))
    named: list[str] = []
    assert caller.engine.close(named.append) == {}
    assert named in ([a], [])


# --- the engines agree --------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_all_engines_have_the_same_contents_after_the_same_actions(seed: int, tmp_path: Path) -> None:
    held = {}
    for name, place in PLACES.items():
        (tmp_path / name).mkdir()
        held[name] = _run(Caller(place(tmp_path / name)), random.Random(seed))
    first, *others = held.values()
    assert all(other == first for other in others)


def _run(caller: Caller, rng: random.Random) -> list[object]:
    """The observations of a caller, step by step, for actions that depend only on `rng`."""
    keys = [caller.resource(name) for name in ("a", "b")]
    observations: list[object] = []
    published = dict.fromkeys(keys, 0)
    for step in range(60):
        key = rng.choice(keys)
        view = caller.views[key]
        caller.now_us += rng.randrange(SECOND)
        match rng.choice(("append", "append", "append", "publish", "trim", "reopen")):
            case "append":
                bodies = [bytes([step]) * rng.randrange(800) for _ in range(rng.randrange(1, 4))]
                first, published[key] = published[key] + 1, published[key] + len(bodies)
                caller.append(key, plain(*bodies, writer=7, first=first))
            case "publish":
                (stage,) = caller.stage(f"s{step}", "a")
                count = rng.randrange(1, 4)
                for _ in range(count):
                    caller.append(stage, plain(bytes([step])))
                base = view.next
                caller.publish(key, base, count, stage)
                if rng.random() < 0.5:  # as if that had been interrupted
                    caller.reopen({key: base})
                    caller.publish(key, base, count, stage)
                caller.drop(StageRecord("/", f"s{step}", "app", 1, {"a": "i-a"}, 0))
            case "trim" if view.contents:
                ref = rng.choice(chunks(view)).ref
                name = "a" if key == keys[0] else "b"
                record = trimmed(ResourceRecord("/", name, f"i-{name}", f"l-{name}"), ref.base)
                assert log_key(record) == key
                caller.save(record)
                view.trim(ref.base)
                caller.change(key, Trim(caller.id(), key, ref.base))
            case "reopen":
                caller.reopen()
                observations.append({k: caller.numbers[k] for k in keys})
        for checked in keys:
            view = caller.views[checked]
            observations.append(
                (contents(view), view.next, view.last_time, [first for first, _ in view.history])
            )
    return observations
