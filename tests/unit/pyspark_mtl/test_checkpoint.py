from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mtl.errors import OffsetError
from mtl.wire.control import Description
from pyspark_mtl.checkpoint import Checkpoint, HeldResource, read, state_of


def written(directory: Path, batches: list[list[Any]], commits: int) -> Path:
    """A checkpoint in Spark's format: batches with the ends of their sources, and committed ones."""
    for log in ("offsets", "commits"):
        (directory / log).mkdir(parents=True)
    for batch, ends in enumerate(batches):
        lines = ["v1", '{"batchWatermarkMs":0}', *(end if end == "-" else json.dumps(end) for end in ends)]
        (directory / "offsets" / str(batch)).write_text("\n".join(lines))
        (directory / "offsets" / f".{batch}.crc").write_bytes(b"crc")
    for batch in range(commits):
        (directory / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    (directory / "metadata").write_text('{"id":"the-query"}')
    return directory


def end(**resources: Any) -> dict[str, Any]:
    return {"resources": resources, "version": 1}


FIRST = end(a={"f": 3, "i": "x", "n": 5})
SECOND = end(a={"i": "x", "n": 9}, b={"f": 2, "i": "y", "n": 4})


def test_a_checkpoint_has_committed_and_planned_positions(tmp_path: Path) -> None:
    assert read(written(tmp_path, [[FIRST], [SECOND]], commits=1)) == Checkpoint(
        "the-query", 0, 1, (HeldResource("a", "x", 5, 9), HeldResource("b", "y", 2, 4))
    )


def test_before_the_first_commit_the_position_is_the_start(tmp_path: Path) -> None:
    found = read(written(tmp_path, [[FIRST]], commits=0))
    assert (found.committed, found.held) == (None, (HeldResource("a", "x", 3, 5),))


def test_after_the_last_commit_no_batch_is_pending(tmp_path: Path) -> None:
    found = read(written(tmp_path, [[FIRST], [SECOND]], commits=2))
    assert (found.committed, found.planned) == (1, 1)
    assert found.held == (HeldResource("a", "x", 9, 9), HeldResource("b", "y", 4, 4))


def test_a_checkpoint_with_an_empty_offset_holds_no_resources(tmp_path: Path) -> None:
    assert read(written(tmp_path, [[end()], [end()]], commits=1)) == Checkpoint("the-query", 0, 1, ())


def test_the_position_of_a_recreated_resource_is_its_new_start(tmp_path: Path) -> None:
    again = end(a={"f": 1, "i": "z", "n": 2})
    assert read(written(tmp_path, [[FIRST], [again]], commits=1)).held == (HeldResource("a", "z", 1, 2),)


def test_sources_of_other_formats_are_skipped(tmp_path: Path) -> None:
    kafka = {"topic": {"0": 7}}
    found = read(written(tmp_path, [[kafka, FIRST], ["-", SECOND]], commits=1))
    assert found.held[0] == HeldResource("a", "x", 5, 9)


@pytest.mark.parametrize(
    ("batches", "words"),
    [
        ([], "is not the checkpoint of a streaming query that has begun"),
        ([[{"topic": {"0": 7}}, "-"]], "none of its sources has the format mtl"),
        ([[{"resources": {}, "version": 9}]], "an offset of version 9"),
    ],
)
def test_a_checkpoint_without_usable_mtl_source_is_an_error(
    tmp_path: Path, batches: list[list[Any]], words: str
) -> None:
    with pytest.raises(OffsetError, match=words):
        read(written(tmp_path, batches, commits=0))


@pytest.mark.parametrize("text", ["", "v2\n{}\n{}", "v1", "\udcff"])
def test_an_invalid_offset_log_is_an_error(tmp_path: Path, text: str) -> None:
    directory = written(tmp_path, [[FIRST]], commits=0)
    (directory / "offsets" / "0").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(OffsetError, match=r"offsets/0 (cannot be read|is of version)"):
        read(directory)


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OffsetError, match="is not the checkpoint"):
        read(tmp_path / "nothing")


def test_a_checkpoint_without_the_querys_name_is_read(tmp_path: Path) -> None:
    directory = written(tmp_path, [[FIRST]], commits=1)
    (directory / "metadata").unlink()
    assert read(directory).query is None


@pytest.mark.parametrize(
    ("incarnation", "earliest", "following", "state"),
    [
        ("x", 1, 20, "served"),
        ("x", 5, 9, "served"),
        ("x", 8, 20, "lost 5 to 7 (3)"),
        ("x", 1, 8, "ends at 8"),
        ("y", 1, 20, "created again"),
    ],
)
def test_the_state_of_held_contents_in_the_broker(
    incarnation: str, earliest: int, following: int, state: str
) -> None:
    found = Description(resource="a", incarnation=incarnation, known_earliest=earliest, known_next=following)
    assert state_of(HeldResource("a", "x", 5, 9), found) == state
    assert state_of(HeldResource("a", "x", 5, 9), None) == "deleted"


def test_another_copy_of_the_log_is_reported(tmp_path: Path) -> None:
    first, second, other = "1.aaaaaaaa", "2.bbbbbbbb", "2.cccccccc"
    done = {"resources": {"a": {"e": first, "f": 1, "i": "x", "n": 5}}, "version": 1}
    under_way = {"resources": {"a": {"e": second, "i": "x", "n": 9}}, "version": 1}
    (held,) = read(written(tmp_path, [[done], [under_way]], commits=1)).held
    assert (held.epoch, held.planned_epoch) == (first, second)
    found = Description(
        resource="a", incarnation="x", known_earliest=1, known_next=20, history=((1, first), (7, second))
    )
    assert state_of(held, found) == "served"
    found = Description(
        resource="a", incarnation="x", known_earliest=1, known_next=20, history=((1, first), (7, other))
    )
    assert state_of(held, found) == "another copy from 7 on"
    found = Description(
        resource="a", incarnation="x", known_earliest=1, known_next=20, history=((1, first), (4, other))
    )
    assert state_of(held, found) == "another copy from 4 on"


def test_the_state_in_a_stopped_log_is_unknown() -> None:
    found = Description(resource="a", incarnation="x", state="stopped", trouble="no space left")
    assert state_of(HeldResource("a", "x", 5, 9), found) == "not open: no space left"
