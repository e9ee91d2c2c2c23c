"""The limits for comparison: a source that only generates the rows, one that only maps files with them, a sink that
only discards them, and one that only writes their octets to a file.

Generating and discarding cost what Spark's Python Data Source API costs by itself, with the same schema, batch size
and number of tasks; files add the cost of memory and disk.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

SCHEMA = "resource string, sequence bigint, timestamp timestamp, body binary"
ROWS = pa.schema([
    ("resource", pa.string()),
    ("sequence", pa.int64()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("body", pa.binary()),
])  # fmt: skip


RESOURCE = "bench-abcdefab"
"""As long as the names of the measured resources (bench.py)."""


def made_up(count: int, batch_rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """`count` rows with bodies of `size` octets: one batch repeated, so that generating costs nothing."""
    rows = min(batch_rows, count)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.repeat(RESOURCE, rows),
            pa.array(range(rows), pa.int64()),
            pa.repeat(pa.scalar(0, ROWS.field("timestamp").type), rows),
            pa.array([bytes(size)] * rows, pa.binary()),
        ],
        schema=ROWS,
    )
    left = count
    while left > 0:
        yield batch.slice(0, left)
        left -= rows


class Share(InputPartition):
    """One task's share of the rows, from a file if there is one."""

    def __init__(self, rows: int, path: str = "") -> None:
        super().__init__(rows)
        self.rows = rows
        self.path = path


class _Rows:
    def __init__(self, options: dict[str, str]) -> None:
        self.total = int(options["rows"])
        self.tasks = int(options["tasks"])
        self.size = int(options["size"])
        self.batch_rows = int(options["batchrows"])
        self.directory = Path(options["directory"]) if "directory" in options else None

    def shares(self) -> Sequence[InputPartition]:
        each = self.total // self.tasks
        if self.directory is None:
            return [Share(each) for _ in range(self.tasks)]
        return [Share(each, str(path)) for path in sorted(self.directory.iterdir())]

    def make(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Share)
        if partition.path:
            return _mapped(partition.path)
        return made_up(partition.rows, self.batch_rows, self.size)


def write_files(directory: Path, rows: int, files: int, batch_rows: int, size: int) -> None:
    """Arrow files with the rows that the generator would make."""
    for number in range(files):
        with pa.OSFile(f"{directory}/{number}", "wb") as target, pa.ipc.new_file(target, ROWS) as writer:
            for batch in made_up(rows // files, batch_rows, size):
                writer.write_batch(batch)


def _mapped(path: str) -> Iterator[pa.RecordBatch]:
    with pa.memory_map(path) as source, pa.ipc.open_file(source) as reader:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


class GeneratorReader(DataSourceReader):
    """All rows at once."""

    def __init__(self, rows: _Rows) -> None:
        self._rows = rows

    def partitions(self) -> Sequence[InputPartition]:
        return self._rows.shares()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._rows.make(partition)


class GeneratorStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """All rows in one micro-batch."""

    def __init__(self, rows: _Rows) -> None:
        self._rows = rows

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 Spark's names, here and below
        return {"at": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return {"at": self._rows.total}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The end never moves."""

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._rows.shares() if end["at"] > start["at"] else []

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._rows.make(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """There is no state to release."""


class GeneratorSource(DataSource):
    """`format("bench_generator")`: options rows, tasks, size, batchRows; with the option directory, from the files in
    it, as many as there are tasks.
    """

    @classmethod
    def name(cls) -> str:
        return "bench_generator"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> GeneratorReader:
        return GeneratorReader(_Rows(dict(self.options)))

    def streamReader(self, schema: StructType) -> GeneratorStreamReader:  # noqa: N802
        return GeneratorStreamReader(_Rows(dict(self.options)))


class Discarder(DataSourceArrowWriter):
    """Discards every batch."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _taken(iterator)


class StreamDiscarder(DataSourceStreamArrowWriter):
    """The same for streams."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _taken(iterator)


def _taken(iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    for _ in iterator:
        pass
    return WriterCommitMessage()


class Filer(DataSourceArrowWriter):
    """Writes the bodies to a file for each task and resource and syncs them at the end: the least work that makes them
    durable at their destination.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _filed(self._directory, iterator)


class StreamFiler(DataSourceStreamArrowWriter):
    """The same for streams."""

    def __init__(self, directory: str) -> None:
        self._directory = directory

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _filed(self._directory, iterator)


def _filed(directory: str, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    with ExitStack() as stack:
        files: dict[str, IO[bytes]] = {}
        for batch in iterator:
            for name, bodies in _by_resource(batch):
                if name not in files:
                    new = tempfile.NamedTemporaryFile(dir=directory, delete=False)  # noqa: SIM115 the stack closes it
                    files[name] = stack.enter_context(new)
                files[name].write(bodies.buffers()[2])
        for file in files.values():
            file.flush()
            os.fdatasync(file.fileno())
    return WriterCommitMessage()


def _by_resource(batch: pa.RecordBatch) -> Iterator[tuple[str, Any]]:
    """The bodies for each resource; all of them for an empty name if the column is missing."""
    bodies = batch.column("body")
    names = batch.column("resource") if "resource" in batch.schema.names else None
    wanted = [""] if names is None else names.unique().to_pylist()
    for name in wanted:
        yield name, bodies if len(wanted) == 1 else bodies.filter(pc.equal(names, name))


class FileSink(DataSource):
    """`format("bench_file")`: option directory."""

    @classmethod
    def name(cls) -> str:
        return "bench_file"

    def writer(self, schema: StructType, overwrite: bool) -> Filer:
        return Filer(str(self.options["directory"]))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamFiler:  # noqa: N802
        return StreamFiler(str(self.options["directory"]))


class DiscardSink(DataSource):
    """`format("bench_discard")`."""

    @classmethod
    def name(cls) -> str:
        return "bench_discard"

    def writer(self, schema: StructType, overwrite: bool) -> Discarder:
        return Discarder()

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamDiscarder:  # noqa: N802
        return StreamDiscarder()


class TickReader(DataSourceStreamReader):
    """A batch of `rows` rows in every trigger, without waiting: the cost of a trigger of a Python source by itself."""

    def __init__(self, rows: _Rows) -> None:
        self._rows = rows

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"at": 0}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        return {"at": start["at"] + 1}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._rows.shares()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._rows.make(partition)

    def commit(self, end: dict[str, Any]) -> None:
        """There is no state to release."""


class TickSource(DataSource):
    """`format("bench_tick")`: options as for the generator; `rows` is the number per trigger."""

    @classmethod
    def name(cls) -> str:
        return "bench_tick"

    def schema(self) -> str:
        return SCHEMA

    def streamReader(self, schema: StructType) -> TickReader:  # noqa: N802
        return TickReader(_Rows(dict(self.options)))
