"""The application query.py with a sink that waits between the broker's answer to a commit and its report to Spark.

That moment is too short to be hit by timing. A demo that kills the driver there makes Spark repeat a commit that the
broker has published.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StructType

from demo_job import query
from pyspark_mtl import DefaultSource
from pyspark_mtl.sink.sink import StreamWriter

ANSWERED = "MTL_DEMO_ANSWERED"
"""Names a file: it gets the number of each batch that the broker has published. While there is a file of the same name
with ".hold" added, the sink waits."""

LONGEST_S = 60.0
"""The longest wait, so that a leftover file cannot stop a query forever."""

_POLL_S = 0.02


class HeldWriter(StreamWriter):
    """Waits after each commit."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 Spark's name
        """Publish the batch, report its number, and wait while it is held."""
        super().commit(messages, batchId)
        answered(Path(os.environ[ANSWERED]), batchId)


class HeldSource(DefaultSource):
    """The format "mtl" with this sink."""

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 Spark's name
        """The writer of the connector with this sink."""
        writer = super().streamWriter(schema, overwrite)
        return HeldWriter(writer._settings, writer._shape)  # noqa: SLF001 a writer has only settings


def answered(mark: Path, batch: int) -> None:
    """Write the number of a batch into `mark`, atomically; then wait while the mark is held."""
    draft = mark.with_name(f"{mark.name}.{os.getpid()}")
    draft.write_text(str(batch), encoding="utf-8")
    draft.rename(mark)
    held, until = mark.with_name(f"{mark.name}.hold"), time.monotonic() + LONGEST_S
    while held.exists() and time.monotonic() < until:
        time.sleep(_POLL_S)  # another process removes the file, or kills this one


if __name__ == "__main__":
    query.main(HeldSource)
