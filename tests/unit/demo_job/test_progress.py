from __future__ import annotations

from pathlib import Path

from demo_job.progress import Checkpoint


def test_nothing_is_done_before_the_first_start(tmp_path: Path) -> None:
    checkpoint = Checkpoint(tmp_path / "not there")
    assert (checkpoint.planned, checkpoint.committed, checkpoint.query) == (-1, -1, None)


def test_the_newest_batch_counts_and_drafts_do_not(tmp_path: Path) -> None:
    for name in ("offsets/0", "offsets/9", "offsets/10", "offsets/.11.tmp", "offsets/.10.crc", "commits/9"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "metadata").write_text('{"id":"ab12"}', encoding="utf-8")
    checkpoint = Checkpoint(tmp_path)
    assert (checkpoint.planned, checkpoint.committed, checkpoint.query) == (10, 9, "ab12")
