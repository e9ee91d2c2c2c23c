"""The engine in memory: its bounds, and delayed answers in any order. The contract is in test_contract.py."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from mtl.errors import StorageFull
from mtl.storage.api import (
    Append,
    CreateLog,
    DropLogs,
    Lane,
    LogOptions,
    LogView,
    NewChunk,
    Save,
    StorageAction,
    Trim,
)
from mtl.storage.memory import OVERHEAD, Memory, MemoryEngine
from mtl.storage.records import CursorRecord, ResourceRecord, StageRecord
from mtl.wire.packs import encode_pack
from tests.support.engines import Caller, MemoryPlace, chunks, plain


def caller_of(octets: int, record_octets: int = 1 << 20) -> tuple[Caller, Memory]:
    place = MemoryPlace()
    place.memory = Memory(octets, record_octets)
    return Caller(place), place.memory


def chunk(size: int) -> NewChunk:
    pack = bytes(encode_pack((bytes(size),), None, 1 << 20))
    return NewChunk(1, pack)


def test_contents_are_bounded_and_trimming_frees_space() -> None:
    entry_size = chunk(1000).size + OVERHEAD
    caller, memory = caller_of(3 * entry_size + 2 * OVERHEAD)
    a = caller.resource("a")
    for _ in range(3):
        assert not isinstance(caller.append(a, chunk(1000)), StorageFull)
    used = memory.used
    refused = caller.append(a, chunk(1000), plain(b"small"))
    assert isinstance(refused, StorageFull)
    assert "memory for contents is full" in str(refused)
    assert "memory-bytes" in str(refused)
    assert (memory.used, len(caller.bodies(a))) == (used, 3)
    assert caller.engine.observe().free == memory.octets - used
    caller.views[a].trim(2)
    caller.change(a, Trim(caller.id(), a, 2))
    assert not isinstance(caller.append(a, chunk(1000)), StorageFull)
    assert len(caller.bodies(a)) == 3


def test_small_contents_count_with_their_overhead() -> None:
    caller, memory = caller_of(1 << 20)
    a = caller.resource("a")
    caller.append(a, plain(b"1"))
    assert memory.used > OVERHEAD


def test_logs_are_bounded() -> None:
    caller, _ = caller_of(3 * OVERHEAD)
    for name in ("a", "b", "c"):
        caller.resource(name)
    options = LogOptions()
    assert isinstance(caller.perform(CreateLog(1, "resources/d", options, b"")), StorageFull)


def test_dropped_logs_free_their_space() -> None:
    caller, memory = caller_of(1 << 20)
    a = caller.resource("a")
    (stage,) = caller.stage("s", "a")
    caller.append(a, chunk(1000))
    caller.append(stage, chunk(1000))
    caller.drop(StageRecord("/", "s", "app", 1, {"a": "i-a"}, 0))
    caller.drop(ResourceRecord("/", "a", "i-a", "l-a"))
    assert memory.used == 0


def test_commits_succeed_in_a_full_memory() -> None:
    """Staged contents are in memory already, and a decided commit must complete."""
    caller, memory = caller_of(4 * chunk(1000).stored)
    a = caller.resource("a")
    (stage,) = caller.stage("s", "a")
    while not isinstance(caller.append(stage, chunk(1000)), StorageFull):
        pass
    count = caller.views[stage].contents
    full = memory.used
    caller.publish(a, 1, count, stage)
    used = memory.used
    assert full - OVERHEAD <= used <= full
    caller.publish(a, 1, count, stage)
    assert memory.used == used
    caller.reopen({a: 1})
    caller.publish(a, 1, count, stage)
    assert memory.used == used
    caller.drop(StageRecord("/", "s", "app", 1, {"a": "i-a"}, 0))
    assert (memory.used, caller.views[a].contents) == (used, count)


def test_records_are_bounded_and_can_always_be_removed() -> None:
    caller, memory = caller_of(1 << 20, record_octets=8 << 10)

    def cursor(n: int) -> CursorRecord:
        return CursorRecord("/", f"g{n}", "a", "i", 1)

    kept = 0
    while not isinstance(result := caller.save(cursor(kept)), StorageFull):
        kept += 1
    assert "memory for records is full" in str(result)
    assert len(memory.records) == kept > 5
    assert caller.save(cursor(0)) is None, "a repeated save needs no more space"
    assert caller.save(cursor(kept), forget=(cursor(1),)) is None
    for n in range(kept + 1):
        assert caller.save(forget=(cursor(n),)) is None
    assert (memory.records, memory.record_used) == ({}, 0)


def test_all_actions_share_one_gathering_lane() -> None:
    engine = MemoryEngine()
    actions: list[StorageAction] = [Save(1, ()), DropLogs(()), Append(2, "x", (), 0), Trim(3, "x", 1)]
    assert {engine.lane(action) for action in actions} == {Lane("memory", 1, together=True)}


def test_answers_may_be_delayed_and_in_any_order() -> None:
    place = MemoryPlace(threads=4)
    caller = Caller(place)
    keys = [caller.resource(name) for name in ("a", "b", "c")]
    allowed = {key: threading.Event() for key in keys}
    performed = threading.Barrier(4)

    def hold(action: StorageAction) -> None:
        if isinstance(action, Append):
            performed.wait(30)
            assert allowed[action.log].wait(30)

    place.before_answer = hold
    answered: list[str] = []
    with ThreadPoolExecutor(3) as threads:

        def append(key: str) -> None:
            changes = caller.perform(Append(1, key, (plain(b"1"),), caller.now_us))
            answered.append(key)
            caller.views[key].apply(changes[0])

        futures = [threads.submit(append, key) for key in keys]
        performed.wait(30)  # all answers are held back
        assert [caller.views[key].next for key in keys] == [1, 1, 1]
        for key, future in reversed(list(zip(keys, futures, strict=True))):
            allowed[key].set()
            future.result(30)
    assert answered == keys[::-1]
    assert [caller.bodies(key) for key in keys] == [[b"1"]] * 3


def test_chunks_have_no_place_in_a_file() -> None:
    caller, _ = caller_of(1 << 20)
    a = caller.resource("a")
    caller.append(a, plain(b"1"))
    view: LogView = caller.views[a]
    with pytest.raises(LookupError):
        view.place(chunks(view)[0])
    assert caller.engine.directory is None
