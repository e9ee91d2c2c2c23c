from __future__ import annotations

from pathlib import Path

from demo_job.progress import Checkpoint, Standstill


def test_before_the_first_start_there_is_no_progress(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "not there")
    assert (checkpoint.planned, checkpoint.committed, checkpoint.query) == (-1, -1, None)


def test_the_newest_batch_counts_without_temporary_files(tmp_path: Path) -> None:
    for name in ("offsets/0", "offsets/9", "offsets/10", "offsets/.11.tmp", "offsets/.10.crc", "commits/9"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "metadata").write_text('{"id":"ab12"}', encoding="utf-8")
    checkpoint = Checkpoint(tmp_path)
    assert (checkpoint.planned, checkpoint.committed, checkpoint.query) == (10, 9, "ab12")


def test_every_batch_planned_or_committed_ends_a_standstill(tmp_path: Path) -> None:
    now = 0.0
    standstill = Standstill(Checkpoint(tmp_path), lambda: now)
    now = 9.0
    assert standstill.seconds == 9.0
    for name in ("offsets/0", "commits/0"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
        assert standstill.seconds == 0.0
        now += 5.0
        assert standstill.seconds == 5.0
