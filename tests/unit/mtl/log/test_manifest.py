"""The manifest: its members, its checksum, and the arithmetic of epochs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from mtl.errors import Damaged, UnknownFormat
from mtl.log.change import LogOptions
from mtl.log.chunk import NewChunk, checksum
from mtl.log.limits import LOG_EPOCHS
from mtl.log.log import create_log, open_log
from mtl.log.manifest import (
    MANIFEST,
    Epoch,
    Manifest,
    decode_manifest,
    encode_manifest,
    epoch_of,
    run_id,
    with_epoch,
)
from mtl.log.store import Store
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import LOG, LogUnderTest

MANY = Manifest(5, 70, 90, b"\0owner\xff", (Epoch(1, "1.0a0b0c0d"), Epoch(60, "7.ffffffff")), salt=2**64 - 1)


@pytest.mark.parametrize("manifest", [Manifest(1, 1), MANY])
def test_an_encoded_manifest_is_decoded(manifest: Manifest) -> None:
    assert decode_manifest(encode_manifest(manifest), "m") == manifest


def test_every_flipped_bit_and_missing_octet_is_detected() -> None:
    data = encode_manifest(MANY)
    for at in range(len(data)):
        with pytest.raises(Damaged, match="mtl recover"):
            decode_manifest(data[:at], "m")
        for bit in range(8):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            with pytest.raises(Damaged, match="mtl recover"):
                decode_manifest(bytes(flipped), "m")


def sealed(text: bytes) -> bytes:
    return text + b"\n%08x\n" % checksum(text)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{}",
        b'{"version":2}',
        b'{"version":2,"earliest":0,"newest":1}',
        b'{"version":2,"earliest":1,"newest":0}',
        b'{"version":2,"earliest":1,"newest":1,"epochs":[[2,"1.a"],[1,"2.b"]]}',
        b'{"version":2,"earliest":1,"newest":1,"epochs":[[2,"x.a"]]}',
        b'{"version":2,"earliest":1,"newest":1,"epochs":[[2,"\xae.a"]]}',
    ],
)
def test_invalid_values_are_damage(text: bytes) -> None:
    with pytest.raises(Damaged):
        decode_manifest(sealed(text), "m")


@pytest.mark.parametrize(("version", "advice"), [(1, "use a new data directory"), (3, "use that version")])
def test_another_version_is_refused_but_not_damage(version: int, advice: str) -> None:
    with pytest.raises(UnknownFormat, match=f"^m .*format {version}.*{advice}"):
        decode_manifest(sealed(b'{"version":%d,"something":"else"}' % version), "m")


def test_an_epoch_replaces_those_at_or_above_its_start() -> None:
    history = (Epoch(1, "1.a"), Epoch(5, "2.b"), Epoch(9, "3.c"))
    assert with_epoch(history, Epoch(12, "4.d")) == (*history, Epoch(12, "4.d"))
    assert with_epoch(history, Epoch(9, "4.d")) == (*history[:2], Epoch(9, "4.d"))
    assert with_epoch(history, Epoch(2, "4.d")) == (history[0], Epoch(2, "4.d"))


def test_beyond_the_limit_the_oldest_epochs_are_dropped() -> None:
    history: tuple[Epoch, ...] = ()
    for number in range(1, LOG_EPOCHS + 3):
        history = with_epoch(history, Epoch(number, f"{number}.a"))
    assert len(history) == LOG_EPOCHS
    assert history[0] == Epoch(3, "3.a")


def test_the_epoch_of_a_content_is_found() -> None:
    history = (Epoch(3, "1.a"), Epoch(5, "2.b"))
    assert [epoch_of(history, x) for x in (1, 2, 3, 4, 5, 99)] == [None, None, "1.a", "1.a", "2.b", "2.b"]


def test_epoch_ids_increase_and_name_their_run() -> None:
    assert run_id((), "aaaaaaaa") == "1.aaaaaaaa"
    assert run_id((Epoch(1, "7.bbbbbbbb"),), "aaaaaaaa") == "8.aaaaaaaa"
    assert run_id((Epoch(1, "7.aaaaaaaa"),), "aaaaaaaa") == "7.aaaaaaaa"


# --- of a log at work ---------------------------------------------------------------------------------------


@pytest.fixture
def log(twin: FaultyDisk) -> LogUnderTest:
    return LogUnderTest(twin, LogOptions(segment_bytes=1 << 20))


def ids(log: LogUnderTest) -> list[tuple[int, str]]:
    return [(first, epoch.partition(".")[0]) for first, epoch in log.reader.history]


def on_disk(log: LogUnderTest) -> Manifest:
    return Store(log.disk, LOG).manifest()


def test_a_run_without_appends_has_no_epoch(log: LogUnderTest) -> None:
    assert log.reader.history == ()
    assert log.reader.epoch == "1.00000001"
    log.append(NewChunk(2, b"x"))
    log.crash()
    log.crash()
    assert ids(log) == [(1, "1")]
    assert log.reader.epoch == "2.00000003"
    log.append(NewChunk(1, b"y"))
    assert ids(log) == [(1, "1"), (3, "2")]
    assert [log.reader.epoch_of(x) for x in (1, 2, 3)] == ["1.00000001", "1.00000001", "2.00000003"]


def test_an_epoch_is_durable_before_its_first_content_is_acknowledged(log: LogUnderTest) -> None:
    log.append(NewChunk(1, b"x"))
    log.crash()
    log.append(NewChunk(1, b"y"))
    log.crash(keep="none")
    assert ids(log) == [(1, "1"), (2, "2")]


def test_a_commit_redone_by_another_run_has_the_epoch_of_that_run(log: LogUnderTest) -> None:
    log.append(NewChunk(1, b"x"))
    log.crash()
    log.commit([[NewChunk(2, b"y")]], adopt=True)
    assert ids(log) == [(1, "1"), (2, "2")]
    log.crash()
    log.reader.apply(log.writer.truncate_to(2))
    del log.held[-1]
    assert ids(log) == [(1, "1")]
    log.append(NewChunk(5, b"z"))
    assert tuple(log.reader.history) == (Epoch(1, "1.00000001"), Epoch(2, "3.00000003"))


def test_further_appends_to_a_segment_write_no_manifest(log: LogUnderTest) -> None:
    log.append(NewChunk(1, b"x"))
    before = log.disk.steps
    log.append(NewChunk(1, b"y"))
    assert log.disk.steps - before == 2, "a write and a sync"


def test_the_first_append_of_a_new_log_writes_no_manifest(log: LogUnderTest) -> None:
    before = log.disk.steps
    log.append(NewChunk(1, b"x"))
    assert log.disk.steps - before == 2


def test_the_manifest_names_a_segment_before_its_contents_are_acknowledged(log: LogUnderTest) -> None:
    log.append(NewChunk(3, b"x"))
    log.roll()
    assert on_disk(log).newest == 1
    log.append(NewChunk(1, b"y"))
    assert (on_disk(log).newest, on_disk(log).end) == (4, 4)


def test_trim_moves_the_earliest_sequence(log: LogUnderTest) -> None:
    log.append(NewChunk(3, b"x"))
    log.roll()
    log.trim(4)
    assert on_disk(log).earliest == 4
    log.close()
    assert open_log(log.disk, LOG, now_us=0)[0].earliest == 4


def test_a_different_owner_replaces_the_stored_one(twin: FaultyDisk) -> None:
    create_log(twin, LOG, 0, owner=b"one")
    open_log(twin, LOG, now_us=0)[1].close()
    assert Store(twin, LOG).manifest().owner == b"one"
    open_log(twin, LOG, now_us=0, owner=b"another")[1].close()
    assert Store(twin, LOG).manifest().owner == b"another"


def test_a_missing_manifest_is_damage_that_names_recover(log: LogUnderTest) -> None:
    log.append(NewChunk(3, b"x"))
    log.close()
    log.disk.unlink(f"{LOG}/{MANIFEST}")
    with pytest.raises(Damaged, match=r"the file is missing.*mtl recover"):
        log.open()


@pytest.mark.parametrize("sealed", [True, False])
def test_a_missing_newest_segment_is_damage(log: LogUnderTest, *, sealed: bool) -> None:
    log.append(NewChunk(3, b"x"))
    log.roll()
    log.append(NewChunk(2, b"y"))
    log.disk.kill()
    if sealed:
        log.open()
        log.roll()
        log.disk.kill()
        log.disk.unlink(f"{LOG}/{6:020d}.segment")
    log.disk.unlink(f"{LOG}/{4:020d}.segment")
    which = (
        r"contents 4 to 5 should be there .at least 2 in all."
        if sealed
        else "contents from 4 on should be there"
    )
    with pytest.raises(Damaged, match=which + r", but 0{19}4\.segment is missing"):
        log.open()


def test_a_missing_empty_newest_segment_is_created_again(log: LogUnderTest) -> None:
    log.append(NewChunk(3, b"x"))
    log.roll()
    log.close()
    log.disk.unlink(f"{LOG}/{4:020d}.segment")
    log.open()
    log.append(NewChunk(1, b"y"))


def test_threads_may_decode_their_first_manifests_concurrently() -> None:
    """A broker opens its first logs in several threads; one of 130 starts after a crash ended with SIGSEGV."""
    call = 'decode_manifest(encode_manifest(Manifest(1, 1, 1, b"x", (Epoch(1, "1.abcdef01"),))), "p")'
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.first_use", "mtl.log.manifest", call], check=False
    )
    assert done.returncode == 0
