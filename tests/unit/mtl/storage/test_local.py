"""The core's disk actions, and opening after a restart. The effects of crashes are in test_committing."""

from __future__ import annotations

import errno
import logging
import random
import re
from copy import deepcopy
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from mtl import limits
from mtl.broker.stages.stages import Stage
from mtl.errors import Damaged, LogStopped, StorageError, StorageFailed, StorageFull
from mtl.log.change import LogOptions, Trimmed
from mtl.log.chunk import NewChunk, RunEntry
from mtl.log.files import RealDisk
from mtl.log.manifest import MANIFEST, encode_manifest
from mtl.log.reader import LogReader
from mtl.log.store import Store
from mtl.storage import limits as storage_limits
from mtl.storage.api import (
    Append,
    CreateLog,
    Draft,
    DropLogs,
    ForgetWriters,
    LogKey,
    LogView,
    OpenedLog,
    OpenLog,
    Publish,
    Roll,
    Save,
    Trim,
)
from mtl.storage.keys import log_key
from mtl.storage.local import Storage
from mtl.storage.records import (
    DroppedRecord,
    PublishRecord,
    ResourceRecord,
    StageRecord,
    encode_owner,
)
from mtl.storage.sqlite import SqliteStore
from mtl.wire.fields import EMPTY, encode_table
from mtl.wire.packs import encode_pack, trust_pack, unpack
from tests.support.engines import chunks
from tests.support.faulty_disk import Crashed, FaultyDisk
from tests.support.faulty_store import FaultyStore
from tests.support.logs import files
from tests.support.texts import in_order

LOG, STAGE = "resources/l1", "stages/s1/0"
RESOURCE = ResourceRecord("/", "a", "i1", "l1")
STAGED = StageRecord("/", "s1", "app", 1, {"a": "i1"}, 0)
OWNER = encode_owner(RESOURCE)
NOW = 1_700_000_000_000_000


def owner_of(log: LogKey) -> bytes:
    """The owner stored in a log."""
    kind, place = log.split("/")[:2]
    if kind == "resources":
        return encode_owner(msgspec.structs.replace(RESOURCE, log=place))
    return encode_owner(msgspec.structs.replace(STAGED, stage=place))


class Desk:
    def __init__(self, segment_bytes: int = 1 << 20) -> None:
        self.disk = FaultyDisk(random.Random(1))
        self.disk.make_dir("/data")
        self.disk.fsync_dir("/")
        self.store = FaultyStore()
        self.segment_bytes = segment_bytes
        self.number = 0
        self.open()

    def __deepcopy__(self, memo: dict[int, Any]) -> Desk:
        """The same disk and records for another process."""
        twin = Desk.__new__(Desk)
        twin.disk, twin.store = deepcopy((self.disk, self.store), memo)
        twin.segment_bytes, twin.number = self.segment_bytes, self.number
        return twin

    def open(self) -> dict[LogKey, OpenedLog | StorageError]:
        """Start again, and open every log that a record names."""
        self.storage = Storage(self.disk, "/data", self.store, self.segment_bytes)
        records = self.storage.restore().records
        earliest = {log_key(r): r.earliest for r in records if isinstance(r, ResourceRecord)}
        entries = [e for r in records if isinstance(r, PublishRecord) for e in r.entries]
        staged = [k for r in records if isinstance(r, StageRecord) for k in Stage(r, 0.0).log_keys]
        base = entries[0].base if entries else None
        found = {
            k: self.open_log(k, earliest.get(k), base if k == LOG else None) for k in [*earliest, *staged]
        }
        return {k: opened for k, opened in found.items() if opened is not None}

    def open_log(self, log: LogKey = LOG, earliest: int | None = None, base: int | None = None) -> Any:
        owner = owner_of(log) if log.startswith("resources/") else None
        return self.perform(OpenLog, log, LogOptions(self.segment_bytes), earliest, base, owner, NOW)

    def perform(self, kind: Any, *arguments: Any) -> Any:
        self.number += 1
        return self.storage.perform(kind(self.number, *arguments))

    def create(self, log: LogKey = LOG, **options: Any) -> LogView:
        reader = self.perform(CreateLog, log, LogOptions(**options), owner_of(log))
        assert isinstance(reader, LogReader), reader
        return reader

    def append(self, log: LogKey, *drafts: Draft | NewChunk) -> Any:
        return self.perform(Append, log, drafts, NOW)


def plain(*bodies: bytes, runs: tuple[RunEntry, ...] = ()) -> Draft:
    return Draft(bodies, None, runs)


def bodies(reader: LogView) -> list[bytes]:
    return [bytes(body) for chunk in chunks(reader) for _, body in unpack(trust_pack(chunk.body))]


def show(reader: LogView, changes: Any) -> None:
    """Apply the changes of an action to the reader."""
    assert not isinstance(changes, StorageError), changes
    for change in changes:
        reader.apply(change)


@pytest.fixture
def desk() -> Desk:
    return Desk()


# --- actions ------------------------------------------------------------------------------------------------


def test_the_manifest_of_another_log_removes_no_contents(desk: Desk) -> None:
    """Its later start of the log would remove the contents below."""
    desk.create()
    desk.append(LOG, plain(b"x"))
    path = f"/data/{LOG}/{MANIFEST}"
    manifest = Store(desk.disk, f"/data/{LOG}").manifest()
    other_owner = encode_owner(ResourceRecord("/", "b", "i2", "l2"))
    desk.disk.put(path, encode_manifest(msgspec.structs.replace(manifest, owner=other_owner, earliest=2)))
    before = desk.disk.sizes(f"/data/{LOG}")
    desk.storage = Storage(desk.disk, "/data", desk.store, desk.segment_bytes)
    found = desk.open_log()
    assert isinstance(found, Damaged)
    assert "this is the manifest of another log" in str(found)
    assert desk.disk.sizes(f"/data/{LOG}") == before


def test_plain_contents_are_packed_and_packs_unchanged(desk: Desk) -> None:
    reader = desk.create()
    pack = encode_pack([b"p1", b"p2"])
    changes = desk.append(
        LOG,
        plain(b"x", b"y"),
        NewChunk(2, memoryview(pack)),
        NewChunk(2, bytes(pack)),
    )
    show(reader, changes)
    (change,) = changes
    assert bodies(reader) == [b"x", b"y", b"p1", b"p2", b"p1", b"p2"]
    assert [ref.count for ref in change.chunks] == [2, 2, 2]
    assert bytes(chunks(reader)[1].body) == bytes(pack)


def test_properties_are_packed(desk: Desk) -> None:
    reader = desk.create()
    table = encode_table({"k": 1})
    show(reader, desk.append(LOG, Draft((b"x", b"y"), (table, EMPTY), ())))
    (chunk,) = chunks(reader)
    assert [p for p, _ in unpack(trust_pack(chunk.body))] == [table, EMPTY]


def test_the_largest_content_fits(desk: Desk) -> None:
    reader = desk.create()
    table = encode_table({"k": bytes(limits.MAX_TABLE - 20)})
    body = bytes(limits.MAX_CONTENT)
    show(reader, desk.append(LOG, Draft((body,), (table,), ())))
    assert bodies(reader) == [body]


def test_roll_trim_and_forget(desk: Desk) -> None:
    reader = desk.create()
    show(reader, desk.append(LOG, plain(b"x", runs=(RunEntry(5, 1, 1),))))
    show(reader, desk.perform(Roll, LOG, NOW))
    show(reader, desk.append(LOG, plain(b"y")))
    assert desk.storage._writers[LOG].last_numbers == {5: 1}
    assert desk.perform(ForgetWriters, LOG, (5, 6)) == []
    assert desk.storage._writers[LOG].last_numbers == {}
    assert desk.perform(Trim, LOG, 2) == [Trimmed(2)]
    segments = [x for x in desk.disk.list_dir("/data/resources/l1") if x.endswith(".segment")]
    assert len(segments) == 1


def test_a_save_changes_the_records(desk: Desk) -> None:
    assert desk.perform(Save, (RESOURCE, STAGED), ()) is None
    assert desk.perform(Save, (), (STAGED,)) is None
    assert desk.store.load().records == [DroppedRecord("stages/s1"), RESOURCE]


def test_saves_together_are_one_transaction_with_the_outcome_of_all_in_order(desk: Desk) -> None:
    before = desk.store.saves
    again = msgspec.structs.replace(RESOURCE, earliest=7)
    saves = [Save(1, (RESOURCE, STAGED)), Save(2, (), (RESOURCE,)), Save(3, (again,)), Save(4, (), (STAGED,))]
    assert desk.storage.save(saves) == [None] * 4
    assert desk.store.saves == before + 1
    assert desk.store.load().records == [DroppedRecord("stages/s1"), again]


def test_a_resource_that_is_made_again_together_with_its_removal_leaves_its_former_logs_named(
    desk: Desk,
) -> None:
    desk.perform(Save, (RESOURCE,), ())
    again = msgspec.structs.replace(RESOURCE, incarnation="i2", log="l2")
    assert desk.storage.save([Save(1, (), (RESOURCE,)), Save(2, (again,))]) == [None] * 2
    assert desk.store.load().records == [DroppedRecord("resources/l1"), again]


def test_a_save_that_fails_does_not_fail_those_it_was_together_with(desk: Desk) -> None:
    failures = [StorageFailed("together"), StorageFailed("the first")]

    def hook(at: str) -> None:
        if at == "begin" and failures:
            raise failures.pop(0)

    desk.store.hook = hook
    first, second = desk.storage.save([Save(1, (RESOURCE,)), Save(2, (STAGED,))])
    assert (str(first), second) == ("the first", None)
    assert STAGED in desk.store.load().records
    assert RESOURCE not in desk.store.load().records


@pytest.mark.parametrize(
    ("error", "kind"), [(errno.ENOSPC, StorageFull), (errno.EDQUOT, StorageFull), (errno.EIO, StorageFailed)]
)
def test_failures_are_results(desk: Desk, error: int, kind: type) -> None:
    reader = desk.create()
    desk.disk.fail("write", error=error)
    failed = desk.append(LOG, plain(b"x"))
    assert type(failed) is kind
    show(reader, desk.append(LOG, plain(b"y")))
    assert bodies(reader) == [b"y"]
    desk.disk.fail("make_dir", error=error)
    assert type(desk.perform(CreateLog, "resources/l2", LogOptions(), OWNER)) is kind


def test_every_action_on_a_stopped_log_fails(desk: Desk) -> None:
    desk.create()
    desk.disk.fail("write")
    desk.disk.fail("truncate")
    assert isinstance(desk.append(LOG, plain(b"x")), LogStopped)
    for result in (
        desk.append(LOG, plain(b"x")),
        desk.perform(Roll, LOG, NOW),
        desk.perform(Trim, LOG, 1),
        desk.perform(Publish, LOG, 1, (), 0, NOW),
    ):
        assert isinstance(result, LogStopped)


def test_contents_that_do_not_fit_fail_without_stopping_the_log(desk: Desk) -> None:
    desk.create()
    assert isinstance(desk.append(LOG, Draft((), None, ())), StorageFailed)
    assert not isinstance(desk.append(LOG, plain(b"x")), StorageError)


# --- publishing ---------------------------------------------------------------------------------------------


@pytest.fixture
def staged(desk: Desk) -> Desk:
    """Two contents in the resource, three in two stages."""
    other = StageRecord("/", "s2", "app", 1, {"a": "i1"}, 0)
    desk.perform(Save, (RESOURCE, STAGED, other), ())
    desk.create()
    desk.append(LOG, plain(b"1", b"2"))
    for log, contents in ((STAGE, (b"x", b"y")), ("stages/s2/0", (b"z",))):
        desk.create(log)
        desk.append(log, plain(*contents, runs=(RunEntry(0, 1, len(contents)),)))
    return desk


def publish(desk: Desk) -> Any:
    return desk.perform(Publish, LOG, 3, (STAGE, "stages/s2/0"), 3, NOW)


@pytest.mark.parametrize("adopt", [0, 1 << 30])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_publishing_is_repeatable(
    staged: Desk, adopt: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage_limits, "ADOPT_OCTETS", adopt)
    for _ in range(times):
        changes = publish(staged)
        assert not isinstance(changes, StorageError), changes
    reader, last = cast(OpenedLog, staged.open()[LOG])
    assert bodies(reader) == [b"1", b"2", b"x", b"y", b"z"]
    assert not any(last.values()) or set(last) == {0}


@pytest.mark.parametrize("adopt", [0, 1 << 30])
@pytest.mark.parametrize("op", ["write", "sync", "rename", "link", "create", "fsync_dir"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_publishing_can_be_repeated_after_any_failure(
    staged: Desk, adopt: int, op: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also after a failure before the first content was in place: the started part has to be undone."""
    monkeypatch.setattr(storage_limits, "ADOPT_OCTETS", adopt)
    reader, _ = cast(OpenedLog, staged.open()[LOG])
    staged.disk.fail(op, nth=nth, error=errno.ENOSPC)
    for _ in range(3):
        changes = publish(staged)
        if isinstance(changes, LogStopped):
            staged.disk.heal()
            staged.disk.kill()
            reader, _ = cast(OpenedLog, staged.open()[LOG])
        elif not isinstance(changes, StorageError):
            show(reader, changes)
            break
    assert bodies(reader) == [b"1", b"2", b"x", b"y", b"z"]


_FAULTS = ("write", "sync", "rename", "link", "create", "open")


@pytest.mark.parametrize("seed", range(30))
def test_changes_of_completed_steps_survive_a_failure_of_later_ones(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After any failure between two steps of any action the reader shows the content of the disk."""
    rng = random.Random(seed)
    monkeypatch.setattr(storage_limits, "ADOPT_OCTETS", 700)
    desk = Desk(segment_bytes=2_000)
    desk.perform(Save, (RESOURCE,), ())
    reader = desk.create()
    expected: list[bytes] = []
    for n in range(30):
        stages = tuple(f"stages/{n}/{part}" for part in range(rng.randrange(4)))
        contents = [
            b"%d.%d" % (n, part) + bytes(rng.choice((10, 900))) for part in range(max(1, len(stages)))
        ]
        if stages:
            desk.store.save((StageRecord("/", str(n), "app", n, {"a": "i1", "b": "", "c": ""}, 0),), ())
        for stage, body in zip(stages, contents, strict=False):
            desk.create(stage)
            assert_stored(desk.append(stage, plain(body)))
        base, now = len(expected) + 1, NOW + n
        changes: Any = None
        for attempt in range(10):
            desk.disk.heal()
            if attempt < rng.randrange(6):
                desk.disk.fail(rng.choice(_FAULTS), nth=rng.randint(1, 6), error=errno.ENOSPC)
            changes = (
                desk.perform(Publish, LOG, base, stages, len(stages), now)
                if stages
                else desk.append(LOG, *map(plain, contents))
            )
            if isinstance(changes, LogStopped):
                desk.disk.heal()
                reader, _ = cast(OpenedLog, desk.open()[LOG])
                assert reader.next in {base, base + len(contents)}
                if not stages and reader.next > base:
                    break
            elif not isinstance(changes, StorageError):
                show(reader, changes)
                break
        else:
            raise AssertionError(changes)
        expected += contents
        if rng.random() < 0.3:
            rolled = desk.perform(Roll, LOG, NOW)
            if not isinstance(rolled, StorageError):
                show(reader, rolled)
        desk.disk.heal()
        assert bodies(reader) == expected


def assert_stored(changes: Any) -> None:
    """A stage has no readers."""
    assert not isinstance(changes, StorageError), changes


def test_a_stage_with_fewer_contents_than_were_committed_is_damaged(staged: Desk) -> None:
    """Otherwise the loss would stay undetected."""
    result = staged.perform(Publish, LOG, 3, (STAGE,), 4, NOW)
    assert isinstance(result, Damaged)
    assert "contents are staged where 4 were" in str(result)


def test_publishing_a_damaged_stage_fails(staged: Desk) -> None:
    (segment,) = [x for x in staged.disk.list_dir("/data/stages/s1/0") if x.endswith(".segment")]
    staged.disk.flip(f"/data/stages/s1/0/{segment}", 64 + 80)
    assert isinstance(publish(staged), Damaged)
    reader, _ = cast(OpenedLog, staged.open()[LOG])
    assert reader.next == 3


# --- dropping -----------------------------------------------------------------------------------------------


def test_dropping_closes_and_removes(staged: Desk) -> None:
    staged.storage.drop(DropLogs((STAGE, "stages/s1/1")))
    assert staged.disk.list_dir("/data/stages") == ["s2"]
    staged.storage.drop(DropLogs((LOG,)))
    assert staged.disk.list_dir("/data/resources") == []
    assert list(staged.storage._writers) == ["stages/s2/0"]
    staged.storage.drop(DropLogs((LOG, STAGE)))


@pytest.mark.parametrize("op", ["unlink", "remove_dir", "fsync_dir"])
def test_a_failed_removal_is_repeated_at_the_next_start(staged: Desk, op: str) -> None:
    staged.disk.fail(op, count=2)
    staged.storage.drop(DropLogs((STAGE,)))
    staged.storage.drop(DropLogs((LOG,)))
    staged.disk.heal()
    staged.perform(Save, (), (RESOURCE, STAGED))
    staged.open()
    assert not staged.disk.exists("/data/lost+found")
    assert staged.disk.list_dir("/data/resources") == []
    assert staged.disk.list_dir("/data/stages") == ["s2"]


# --- opening ------------------------------------------------------------------------------------------------


def test_empty_logs_without_record_are_removed(desk: Desk) -> None:
    for log in (LOG, "resources/l2", STAGE, "stages/s2/3"):
        desk.create(log)
    for leaving in ("resources/l3.new", "resources/l1.gone"):
        desk.disk.make_dir(f"/data/{leaving}")
        desk.disk.put(f"/data/{leaving}/00000000000000000001.segment", b"x")
    desk.store.save((RESOURCE, STAGED), ())
    assert set(desk.open()) == {LOG, STAGE}
    assert desk.disk.list_dir("/data/resources") == ["l1"]
    assert desk.disk.list_dir("/data/stages") == ["s1"]


def lost_and_found(desk: Desk) -> list[str]:
    return desk.disk.list_dir("/data/lost+found") if desk.disk.exists("/data/lost+found") else []


@pytest.fixture
def filled(desk: Desk) -> Desk:
    """A resource and a stage with contents."""
    desk.perform(Save, (RESOURCE, STAGED), ())
    desk.perform(CreateLog, LOG, LogOptions(), encode_owner(RESOURCE))
    desk.perform(CreateLog, STAGE, LogOptions(), encode_owner(STAGED))
    for log in (LOG, STAGE):
        desk.append(log, plain(b"1", b"2"))
    return desk


def test_a_log_with_contents_and_without_record_is_kept(
    filled: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    for again in ("", "-2"):
        filled.store.save((), (RESOURCE, STAGED))  # as an older copy of the records would have it
        assert filled.open() == {}
        assert lost_and_found(filled)[:: len(lost_and_found(filled)) - 1] == [
            "resource-l1",
            f"stage-s1{again}",
        ]
        filled.perform(CreateLog, LOG, LogOptions(), encode_owner(RESOURCE))
        filled.perform(CreateLog, STAGE, LogOptions(), encode_owner(STAGED))
        for log in (LOG, STAGE):
            filled.append(log, plain(b"3"))
    assert re.search(in_order("'a'", "'/'", "1 to 2", "`mtl recover /data`"), caplog.text)
    assert re.search(in_order("stage", "version 1", "'app'", "1 to 2"), caplog.text)
    assert {r.levelname for r in caplog.records} == {"WARNING"}
    assert filled.disk.exists("/data/lost+found/resource-l1/manifest")


@pytest.mark.parametrize("power", [False, True])
def test_moving_a_log_to_lost_and_found_is_atomic(filled: Desk, power: bool) -> None:
    filled.store.save((), (RESOURCE, STAGED))
    for steps in range(12):
        twin = deepcopy(filled)
        twin.disk.crash_after(steps)
        try:
            twin.open()
        except Crashed:
            pass
        twin.disk.crash(power=power)
        twin.open()
        assert lost_and_found(twin) == ["resource-l1", "stage-s1"]
        assert twin.disk.list_dir("/data/resources") == twin.disk.list_dir("/data/stages") == []


def test_a_failed_move_leaves_the_log_in_place(filled: Desk, caplog: pytest.LogCaptureFixture) -> None:
    filled.store.save((), (RESOURCE, STAGED))
    filled.disk.fail("rename", error=errno.ENOSPC, count=2)
    assert filled.open() == {}
    assert "stays in its place" in caplog.text
    assert filled.open() == {}
    assert lost_and_found(filled) == ["resource-l1", "stage-s1"]


@pytest.mark.parametrize("drops", [0, 1, 2])
def test_a_log_whose_record_was_removed_on_purpose_is_removed(filled: Desk, drops: int) -> None:
    """At every step of its removal."""
    filled.perform(Save, (), (RESOURCE, STAGED))
    for log in (LOG, STAGE)[:drops]:
        filled.storage.drop(DropLogs((log,)))
    for _ in range(2):
        assert filled.open() == {}
        assert lost_and_found(filled) == []
        assert filled.disk.list_dir("/data/resources") == filled.disk.list_dir("/data/stages") == []
    assert not [r for r in filled.store.load().records if isinstance(r, DroppedRecord)]


def test_the_record_of_a_removal_is_deleted_by_the_next_save(filled: Desk) -> None:
    filled.perform(Save, (), (RESOURCE, STAGED))
    filled.storage.drop(DropLogs((LOG, STAGE)))
    filled.perform(Save, ())
    assert not [r for r in filled.store.load().records if isinstance(r, DroppedRecord)]


def test_an_undone_removal_removes_no_log(filled: Desk) -> None:
    """Its transaction failed but reached the disk; another one restored the record."""

    def fail(point: str) -> None:
        if point == "commit":
            raise StorageFailed("disk I/O error")

    filled.store.hook = fail
    assert isinstance(filled.perform(Save, (), (RESOURCE,)), StorageFailed)
    filled.store.crash(landed=True)
    assert filled.perform(Save, (RESOURCE,), ()) is None
    assert set(filled.open()) == {LOG, STAGE}
    filled.store.save((), (RESOURCE,))
    filled.open()
    assert lost_and_found(filled) == ["resource-l1"], "nothing that was taken back counts as meant"


@pytest.mark.parametrize("how", ["damaged", "lost"])
def test_a_damaged_record_is_restored_from_the_manifest(
    filled: Desk, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    for record in (RESOURCE, STAGED):
        if how == "damaged":
            filled.store.damage(record.kind, record.key)
        else:
            filled.store.lose(record.kind, record.key)
    logs = filled.open()
    assert bodies(cast(OpenedLog, logs[LOG])[0]) == [b"1", b"2"]
    assert set(logs) == {LOG, STAGE}
    assert filled.store.load().damages == ()
    assert all(x in filled.store.load().records for x in (RESOURCE, STAGED))
    assert re.search(in_order("resources/l1", "lost"), caplog.text)


def test_a_damaged_record_with_a_damaged_manifest_is_reported_as_lost(filled: Desk) -> None:
    filled.store.damage(RESOURCE.kind, RESOURCE.key)
    filled.disk.flip(f"/data/{LOG}/{MANIFEST}", 9)
    assert set(filled.open()) == {STAGE}
    assert lost_and_found(filled) == ["resource-l1"]
    assert [(d.kind, d.key) for d in filled.store.load().damages] == [(RESOURCE.kind, RESOURCE.key)]


def test_two_logs_that_claim_a_lost_record_are_both_kept(filled: Desk) -> None:
    other = msgspec.structs.replace(RESOURCE, log="l2")
    filled.perform(CreateLog, "resources/l2", LogOptions(), encode_owner(other))
    filled.append("resources/l2", plain(b"3"))
    filled.store.damage(RESOURCE.kind, RESOURCE.key)
    assert set(filled.open()) == {STAGE}
    assert lost_and_found(filled) == ["resource-l1", "resource-l2"]


def test_a_failed_sweep_does_not_prevent_the_start(desk: Desk) -> None:
    desk.create("resources/l2")
    desk.disk.fail("unlink")
    assert desk.open() == {}


@pytest.mark.parametrize("what", ["gone", "damaged"])
def test_opening_a_damaged_log_returns_its_error(desk: Desk, what: str) -> None:
    desk.store.save((RESOURCE, ResourceRecord("/", "b", "i2", "l2")), ())
    desk.create("resources/l2")
    if what == "damaged":
        desk.create(LOG)
        desk.append(LOG, plain(b"x"))
        desk.append(LOG, plain(b"y"))
        (segment,) = files(desk.disk, "/data/resources/l1")
        desk.disk.flip(f"/data/resources/l1/{segment}", 64 + 80)
    logs = desk.open()
    assert isinstance(logs[LOG], StorageError)
    assert isinstance(logs["resources/l2"], tuple)


def test_restore_opens_no_log(desk: Desk) -> None:
    desk.create()
    desk.store.save((RESOURCE,), ())
    desk.storage.close()
    desk.disk.fail("open", count=1_000)
    storage = Storage(desk.disk, "/data", desk.store, 1 << 20)
    assert RESOURCE in storage.restore().records


def test_opening_a_staged_log_that_was_never_created_returns_none(desk: Desk) -> None:
    assert desk.open_log(STAGE) is None
    assert isinstance(desk.open_log(LOG), Damaged), "a resource's log was made before its record"


@pytest.mark.parametrize("base", [None, 2])
@pytest.mark.parametrize("op", ["write", "sync", "open", "read", "truncate", "fsync_dir", "create", "rename"])
def test_a_failed_open_leaves_no_file_open_and_can_be_repeated(desk: Desk, op: str, base: int | None) -> None:
    desk.create()
    desk.append(LOG, plain(b"x", runs=(RunEntry(5, 1, 1),)))
    desk.append(LOG, plain(b"y"))
    desk.store.save((RESOURCE,), ())
    desk.disk.crash(power=False)
    desk.storage = Storage(desk.disk, "/data", desk.store, 1 << 20)
    opened: object = None
    for nth in range(1, 20):
        desk.disk.fail(op, nth=nth)
        opened = desk.open_log(LOG, 1, base)
        desk.disk.heal()
        if not isinstance(opened, StorageError):
            break
        assert isinstance(opened, StorageFailed), "it may pass"
        assert desk.disk.open_files == 0
    reader, last = cast(OpenedLog, opened)
    assert bodies(reader) == [b"x", b"y"][: 1 if base else 2]
    assert last == {5: 1}
    for change in desk.append(LOG, plain(b"z")):
        reader.apply(change)
    assert bodies(reader)[-1] == b"z"


def test_cut_contents_are_named_in_a_warning(desk: Desk, caplog: pytest.LogCaptureFixture) -> None:
    """Two bits of the last group changed before its end was recorded: it looks like an unfinished write."""
    desk.store.save((RESOURCE,), ())
    desk.create(LOG)
    desk.append(LOG, plain(b"x"))
    desk.append(LOG, plain(b"y", b"z"))
    desk.disk.kill()
    (segment,) = files(desk.disk, f"/data/{LOG}")
    path = f"/data/{LOG}/{segment}"
    last = desk.disk.content(path).rindex(b"MTLc")
    for octet in (70, 90):
        desk.disk.flip(path, last + octet)
    desk.open()
    (record,) = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert re.search(in_order(f"octet {last}", "2 to 3"), record.message)
    assert "Their sequences are assigned again" in record.message


def test_an_unfinished_write_without_contents_is_not_logged(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    desk.store.save((RESOURCE,), ())
    desk.create(LOG)
    desk.append(LOG, plain(b"x"))
    desk.disk.kill()
    (segment,) = files(desk.disk, f"/data/{LOG}")
    path = f"/data/{LOG}/{segment}"
    desk.disk.put(path, desk.disk.content(path) + b"half a header")
    desk.open()
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_close_syncs_logs_of_durability_os(desk: Desk) -> None:
    desk.store.save((ResourceRecord("/", "a", "i1", "l1", "os"),), ())
    desk.create(durability="os")
    desk.append(LOG, plain(b"x"))
    desk.storage.close()
    desk.disk.crash(keep="none")
    reader, _ = cast(OpenedLog, desk.open()[LOG])
    assert bodies(reader) == [b"x"]
    assert RESOURCE.incarnation in {
        r.incarnation for r in desk.store.load().records if isinstance(r, ResourceRecord)
    }


def test_a_failed_close_names_the_log(desk: Desk) -> None:
    desk.create(durability="os")
    desk.create("resources/l2")
    desk.append(LOG, plain(b"x"))
    desk.disk.fail("sync")
    closing: list[LogKey] = []
    assert list(desk.storage.close(closing.append)) == [LOG]
    assert closing == [LOG, "resources/l2"]


@pytest.mark.parametrize(("durability", "lost"), [("os", [LOG]), ("sync", [])])
def test_a_stopped_log_may_have_lost_confirmed_contents(
    desk: Desk, durability: str, lost: list[LogKey]
) -> None:
    """Only if contents are confirmed before they are synced."""
    desk.create(durability=durability)
    desk.append(LOG, plain(b"x"))
    desk.disk.fail("write")
    desk.disk.fail("truncate")
    assert isinstance(desk.append(LOG, plain(b"y")), LogStopped)
    assert list(desk.storage.close()) == lost


def test_actions_on_a_real_disk(tmp_path: Path) -> None:
    data = str(tmp_path)
    store = SqliteStore(f"{data}/broker.db")
    storage = Storage(RealDisk(), data, store, 1 << 20)
    storage.restore()
    reader = storage.perform(CreateLog(1, LOG, LogOptions(), b""))
    assert isinstance(reader, LogReader)
    storage.perform(Append(2, LOG, (plain(b"x"),), NOW))
    storage.perform(Save(3, (RESOURCE,)))
    storage.close()
    reader.close()
    again = Storage(RealDisk(), data, SqliteStore(f"{data}/broker.db"), 1 << 20)
    again.restore()
    opened, _ = cast(OpenedLog, again.perform(OpenLog(1, LOG, LogOptions(), 1, None, OWNER, NOW)))
    assert bodies(opened) == [b"x"]
    opened.close()
    again.close()


def test_a_truncation_survives_a_failure_of_the_next_step(
    staged: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt is interrupted, the second undoes it and fails, the third succeeds."""
    monkeypatch.setattr(storage_limits, "ADOPT_OCTETS", 600)
    desk = staged
    big = StageRecord("/", "s3", "app", 1, {"a": "i1"}, 0)
    desk.perform(Save, (big,), ())
    desk.create("stages/s3/0")
    desk.append("stages/s3/0", plain(bytes(900)))
    reader, _ = cast(OpenedLog, desk.open()[LOG])

    def publish() -> Any:
        return desk.perform(Publish, LOG, 3, (STAGE, "stages/s3/0"), 3, NOW)

    desk.disk.fail("link", error=errno.ENOSPC)
    assert isinstance(publish(), StorageFull)
    desk.disk.fail("open", error=errno.EIO, when=lambda path: "/stages/s1/" in path)
    assert isinstance(publish(), StorageFailed)
    show(reader, publish())
    assert bodies(reader) == [b"1", b"2", b"x", b"y", bytes(900)]


def test_the_outcome_of_a_failed_save_is_decided_at_the_next_start(desk: Desk) -> None:
    """The state found by that start must stay valid after any later crash."""

    def fail(at: str) -> None:
        if at == "commit":
            raise StorageFailed("disk I/O error")

    desk.store.hook = fail
    assert isinstance(desk.perform(Save, (RESOURCE,), ()), StorageError)
    desk.store.hook = lambda _: None
    assert desk.open() == {}
    desk.store.crash(landed=True)
    assert desk.open() == {}
