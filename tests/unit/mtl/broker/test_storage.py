"""Carrying out the core's disk actions, and opening everything again. What crashes leave is in test_committing."""

from __future__ import annotations

import errno
import random
from pathlib import Path
from typing import Any, cast

import pytest

from mtl import limits
from mtl.broker import actions as a
from mtl.broker.core import OpenedLog
from mtl.broker.records import ResourceRecord, RunRecord, StageRecord
from mtl.broker.storage import Storage
from mtl.broker.store import SqliteStore
from mtl.errors import Damaged, LogStopped, StorageError, StorageFailed, StorageFull
from mtl.log import LogOptions, LogReader, NewChunk, RealDisk, RunEntry, Trimmed
from mtl.wire.fields import EMPTY, encode_table
from mtl.wire.packs import encode_pack, trust_pack, unpack
from tests.support.faulty_disk import FaultyDisk
from tests.support.faulty_store import FaultyStore

LOG, STAGE = "resources/l1", "stages/s1/0"
RESOURCE = ResourceRecord("/", "a", "i1", "l1")
STAGED = StageRecord("/", "s1", "app", 1, {"a": "i1"}, 0)
NOW = 1_700_000_000_000_000


class Desk:
    def __init__(self, segment_bytes: int = 1 << 20) -> None:
        self.disk = FaultyDisk(random.Random(1))
        self.disk.make_dir("/data")
        self.disk.fsync_dir("/")
        self.store = FaultyStore()
        self.segment_bytes = segment_bytes
        self.number = 0
        self.open()

    def open(self, boot: str = "boot") -> dict[a.LogKey, OpenedLog | StorageError]:
        self.storage = Storage(self.disk, "/data", self.store, self.segment_bytes)
        return dict(self.storage.restore(boot, "new", NOW).logs)

    def perform(self, kind: Any, *arguments: Any) -> Any:
        self.number += 1
        return self.storage.perform(kind(self.number, *arguments))

    def create(self, log: a.LogKey = LOG, **options: Any) -> LogReader:
        reader = self.perform(a.CreateLog, log, LogOptions(**options))
        assert isinstance(reader, LogReader), reader
        return reader

    def append(self, log: a.LogKey, *drafts: a.Draft | NewChunk) -> Any:
        return self.perform(a.Append, log, drafts, NOW)


def plain(*bodies: bytes, runs: tuple[RunEntry, ...] = ()) -> a.Draft:
    return a.Draft(bodies, None, runs)


def bodies(reader: LogReader) -> list[bytes]:
    found, ref = [], reader.find(reader.earliest)
    while ref is not None:
        found += [bytes(body) for _, body in unpack(trust_pack(reader.read(ref)))]
        ref = reader.following(ref)
    return found


@pytest.fixture
def desk() -> Desk:
    return Desk()


# --- actions ------------------------------------------------------------------------------------------------


def test_plain_contents_are_packed_and_packs_kept(desk: Desk) -> None:
    reader = desk.create()
    pack = encode_pack([b"p1", b"p2"])
    change = desk.append(
        LOG,
        plain(b"x", b"y"),
        NewChunk(2, memoryview(pack)),
        NewChunk(2, bytes(pack)),
    )
    reader.apply(change)
    assert bodies(reader) == [b"x", b"y", b"p1", b"p2", b"p1", b"p2"]
    assert [ref.count for ref in change.chunks] == [2, 2, 2]
    found = reader.find(3)
    assert found is not None
    assert bytes(reader.read(found)) == bytes(pack)


def test_properties_are_packed_too(desk: Desk) -> None:
    reader = desk.create()
    table = encode_table({"k": 1})
    reader.apply(desk.append(LOG, a.Draft((b"x", b"y"), (table, EMPTY), ())))
    ref = reader.find(1)
    assert ref is not None
    assert [p for p, _ in unpack(trust_pack(reader.read(ref)))] == [table, EMPTY]


def test_the_largest_content_fits(desk: Desk) -> None:
    reader = desk.create()
    table = encode_table({"k": bytes(limits.MAX_TABLE - 20)})
    body = bytes(limits.MAX_CONTENT)
    reader.apply(desk.append(LOG, a.Draft((body,), (table,), ())))
    assert bodies(reader) == [body]


def test_roll_trim_and_forget(desk: Desk) -> None:
    reader = desk.create()
    reader.apply(desk.append(LOG, plain(b"x", runs=(RunEntry(5, 1, 1),))))
    reader.apply(desk.perform(a.Roll, LOG, NOW))
    reader.apply(desk.append(LOG, plain(b"y")))
    assert desk.storage._writers[LOG].last_numbers == {5: 1}
    assert desk.perform(a.ForgetWriters, LOG, (5, 6)) is None
    assert desk.storage._writers[LOG].last_numbers == {}
    assert desk.perform(a.Trim, LOG, 2) == Trimmed(2)
    segments = [x for x in desk.disk.list_dir("/data/resources/l1") if x.endswith(".segment")]
    assert len(segments) == 1


def test_saves_go_to_the_records(desk: Desk) -> None:
    assert desk.perform(a.Save, (RESOURCE, STAGED), ()) is None
    assert desk.perform(a.Save, (), (STAGED,)) is None
    assert [r for r in desk.store.load() if not isinstance(r, RunRecord)] == [RESOURCE]


@pytest.mark.parametrize(
    ("error", "kind"), [(errno.ENOSPC, StorageFull), (errno.EDQUOT, StorageFull), (errno.EIO, StorageFailed)]
)
def test_failures_are_results(desk: Desk, error: int, kind: type) -> None:
    reader = desk.create()
    desk.disk.fail("write", error=error)
    failed = desk.append(LOG, plain(b"x"))
    assert type(failed) is kind
    reader.apply(desk.append(LOG, plain(b"y")))
    assert bodies(reader) == [b"y"]
    desk.disk.fail("make_dir", error=error)
    assert type(desk.perform(a.CreateLog, "resources/l2", LogOptions())) is kind


def test_a_log_that_stopped_says_so_from_then_on(desk: Desk) -> None:
    desk.create()
    desk.disk.fail("write")
    desk.disk.fail("truncate")
    assert isinstance(desk.append(LOG, plain(b"x")), LogStopped)
    for result in (
        desk.append(LOG, plain(b"x")),
        desk.perform(a.Roll, LOG, NOW),
        desk.perform(a.Trim, LOG, 1),
        desk.perform(a.Publish, LOG, 1, (), NOW),
    ):
        assert isinstance(result, LogStopped)


def test_contents_that_do_not_fit_after_all_are_a_failure_and_no_end(desk: Desk) -> None:
    desk.create()
    assert isinstance(desk.append(LOG, a.Draft((), None, ())), StorageFailed)
    assert not isinstance(desk.append(LOG, plain(b"x")), StorageError)


# --- publishing ---------------------------------------------------------------------------------------------


@pytest.fixture
def staged(desk: Desk) -> Desk:
    """Two contents in the resource, three in two stages."""
    other = StageRecord("/", "s2", "app", 1, {"a": "i1"}, 0)
    desk.perform(a.Save, (RESOURCE, STAGED, other), ())
    desk.create()
    desk.append(LOG, plain(b"1", b"2"))
    for log, contents in ((STAGE, (b"x", b"y")), ("stages/s2/0", (b"z",))):
        desk.create(log)
        desk.append(log, plain(*contents, runs=(RunEntry(0, 1, len(contents)),)))
    return desk


def publish(desk: Desk) -> Any:
    return desk.perform(a.Publish, LOG, 3, (STAGE, "stages/s2/0"), NOW)


@pytest.mark.parametrize("adopt", [0, 1 << 30])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_publishing_is_repeatable(
    staged: Desk, adopt: int, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "ADOPT_OCTETS", adopt)
    for _ in range(times):
        changes = publish(staged)
        assert not isinstance(changes, StorageError), changes
    reader, last = cast(OpenedLog, staged.open()[LOG])
    assert bodies(reader) == [b"1", b"2", b"x", b"y", b"z"]
    assert not any(last.values()) or set(last) == {0}


@pytest.mark.parametrize("adopt", [0, 1 << 30])
@pytest.mark.parametrize("op", ["write", "sync", "rename", "link", "create", "fsync_dir"])
@pytest.mark.parametrize("nth", [1, 2, 3])
def test_publishing_goes_on_after_any_failure(
    staged: Desk, adopt: int, op: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it failed before the first content was in place: what it began has to be taken back."""
    monkeypatch.setattr(limits, "ADOPT_OCTETS", adopt)
    reader, _ = cast(OpenedLog, staged.open()[LOG])
    staged.disk.fail(op, nth=nth, error=errno.ENOSPC)
    for _ in range(3):
        changes = publish(staged)
        if isinstance(changes, LogStopped):
            staged.disk.heal()
            staged.disk.kill()
            reader, _ = cast(OpenedLog, staged.open()[LOG])
        elif not isinstance(changes, StorageError):
            for change in changes:
                reader.apply(change)
            break
    assert bodies(reader) == [b"1", b"2", b"x", b"y", b"z"]


def test_a_damaged_stage_is_told(staged: Desk) -> None:
    (segment,) = [x for x in staged.disk.list_dir("/data/stages/s1/0") if x.endswith(".segment")]
    staged.disk.flip(f"/data/stages/s1/0/{segment}", 64 + 80)
    assert isinstance(publish(staged), Damaged)
    reader, _ = cast(OpenedLog, staged.open()[LOG])
    assert reader.next == 3


# --- dropping -----------------------------------------------------------------------------------------------


def test_dropping_closes_and_removes(staged: Desk) -> None:
    staged.storage.drop(a.DropLogs((STAGE, "stages/s1/1")))
    assert staged.disk.list_dir("/data/stages") == ["s2"]
    staged.storage.drop(a.DropLogs((LOG,)))
    assert staged.disk.list_dir("/data/resources") == []
    assert list(staged.storage._writers) == ["stages/s2/0"]
    staged.storage.drop(a.DropLogs((LOG, STAGE)))


@pytest.mark.parametrize("op", ["unlink", "remove_dir", "fsync_dir"])
def test_what_cannot_be_removed_goes_with_the_next_start(staged: Desk, op: str) -> None:
    staged.disk.fail(op, count=2)
    staged.storage.drop(a.DropLogs((STAGE,)))
    staged.storage.drop(a.DropLogs((LOG,)))
    staged.disk.heal()
    staged.store.save((), (RESOURCE, STAGED))
    staged.open()
    assert staged.disk.list_dir("/data/resources") == []
    assert staged.disk.list_dir("/data/stages") == ["s2"]


# --- opening ------------------------------------------------------------------------------------------------


def test_what_no_record_names_is_swept(desk: Desk) -> None:
    for log in (LOG, "resources/l2", STAGE, "stages/s2/3"):
        desk.create(log)
    desk.store.save((RESOURCE, STAGED), ())
    assert set(desk.open()) == {LOG, STAGE}
    assert desk.disk.list_dir("/data/resources") == ["l1"]
    assert desk.disk.list_dir("/data/stages") == ["s1"]


def test_a_sweep_that_fails_does_not_keep_the_broker_from_starting(desk: Desk) -> None:
    desk.create("resources/l2")
    desk.disk.fail("unlink")
    assert desk.open() == {}


@pytest.mark.parametrize("what", ["gone", "damaged"])
def test_a_log_that_does_not_open_is_reported_in_its_place(desk: Desk, what: str) -> None:
    desk.store.save((RESOURCE, ResourceRecord("/", "b", "i2", "l2")), ())
    desk.create("resources/l2")
    if what == "damaged":
        desk.create(LOG)
        desk.append(LOG, plain(b"x"))
        desk.append(LOG, plain(b"y"))
        (segment,) = desk.disk.list_dir("/data/resources/l1")
        desk.disk.flip(f"/data/resources/l1/{segment}", 64 + 80)
    logs = desk.open()
    assert isinstance(logs[LOG], StorageError)
    assert isinstance(logs["resources/l2"], tuple)


def test_the_records_know_how_the_last_run_ended(desk: Desk) -> None:
    def run() -> RunRecord:
        (found,) = [r for r in desk.store.load() if isinstance(r, RunRecord)]
        return found

    assert run() == RunRecord("boot", clean=False)
    desk.storage.close("boot")
    assert run() == RunRecord("boot", clean=True)
    desk.open("another")
    assert run() == RunRecord("another", clean=False)


def test_close_makes_durability_os_durable(desk: Desk) -> None:
    desk.store.save((ResourceRecord("/", "a", "i1", "l1", "os"),), ())
    desk.create(durability="os")
    desk.append(LOG, plain(b"x"))
    desk.storage.close("boot")
    desk.disk.crash(keep="none")
    reader, _ = cast(OpenedLog, desk.open("another")[LOG])
    assert bodies(reader) == [b"x"]
    assert RESOURCE.incarnation in {r.incarnation for r in desk.store.load() if isinstance(r, ResourceRecord)}


def test_a_close_that_fails_is_not_called_clean(desk: Desk) -> None:
    desk.create(durability="os")
    desk.create("resources/l2")
    desk.append(LOG, plain(b"x"))
    desk.disk.fail("sync")
    with pytest.raises(StorageError):
        desk.storage.close("boot")
    assert RunRecord("boot", clean=False) in desk.store.load()


def test_on_a_real_disk(tmp_path: Path) -> None:
    data = str(tmp_path)
    store = SqliteStore(f"{data}/broker.db")
    storage = Storage(RealDisk(), data, store, 1 << 20)
    storage.restore("boot", "new", NOW)
    reader = storage.perform(a.CreateLog(1, LOG, LogOptions()))
    assert isinstance(reader, LogReader)
    storage.perform(a.Append(2, LOG, (plain(b"x"),), NOW))
    storage.perform(a.Save(3, (RESOURCE,)))
    storage.close("boot")
    reader.close()
    again = Storage(RealDisk(), data, SqliteStore(f"{data}/broker.db"), 1 << 20)
    opened, _ = cast(OpenedLog, again.restore("boot", "new", NOW).logs[LOG])
    assert bodies(opened) == [b"x"]
    opened.close()
    again.close("boot")
