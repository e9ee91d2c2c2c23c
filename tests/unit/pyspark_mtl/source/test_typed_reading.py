from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from mtl.errors import DataLoss
from pyspark_mtl.source.offsets import OffsetRange
from pyspark_mtl.source.reading import Task
from pyspark_mtl.source.typed_reading import read
from tests.support.fake_client import DEFAULT, FakeClient, FakeLog
from tests.support.typed import shape

TASK = Task(OffsetRange("a", "i1", 1, 11))
ID = [("id", pa.int64())]


@pytest.fixture(autouse=True)
def _log(client: FakeClient) -> None:
    client.logs["a"] = FakeLog([b'{"id": %d}' % n if n % 3 else b"bad" for n in range(1, 11)])
    client.logs["dead"] = FakeLog()


def test_a_task_reads_rows_and_writes_dead_letters(client: FakeClient) -> None:
    batches = list(read(DEFAULT, TASK, shape(ID, dead_letter="dead"), fail_on_data_loss=True))
    found = [number for batch in batches for number in batch.column("id").to_pylist()]
    assert found == [n if n % 3 else None for n in range(1, 11)]
    assert client.logs["dead"].bodies == [b"bad"] * 3


def test_a_repeated_task_writes_each_dead_letter_once(client: FakeClient) -> None:
    shaped = shape(ID, dead_letter="dead")
    first = read(DEFAULT, TASK, shaped, fail_on_data_loss=True)
    next(first)
    first.close()  # type: ignore[attr-defined]
    assert client.logs["dead"].bodies == [b"bad"]
    list(read(DEFAULT, TASK, shaped, fail_on_data_loss=True))
    list(read(DEFAULT, TASK, shaped, fail_on_data_loss=True))
    assert client.logs["dead"].bodies == [b"bad"] * 3


def test_removed_contents_are_a_loss(client: FakeClient) -> None:
    client.logs["a"].earliest = 5
    with pytest.raises(DataLoss):
        list(read(DEFAULT, TASK, shape(ID), fail_on_data_loss=True))
    assert sum(batch.num_rows for batch in read(DEFAULT, TASK, shape(ID), fail_on_data_loss=False)) == 6


def test_raw_bodies_do_not_use_the_code_for_typed_ones() -> None:
    """That code makes Arrow columns of Python values, for which pyarrow imports pandas."""
    code = "import sys, pyspark_mtl.source.source, pyspark_mtl.sink.sink; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not [
        name
        for name in loaded.split()
        if name.startswith(("pyspark_mtl.rows.typed", "pyspark_mtl.rows.bodies"))
    ]
