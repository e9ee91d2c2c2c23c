"""Hooks for tests, which stop a process at a moment that no test could hit by time. Off unless an environment variable
says otherwise; no part of the connector depends on them.

MTL_TEST_HOOK_AFTER_COMMIT names a file. When the broker has answered Stage.Commit and before Spark is told so, the sink
writes "QUERY_ID BATCH_ID" into that file and then waits as long as there is a file of the same name with ".hold" added
(at most limits.TEST_HOOK_HOLD_S). A test that finds the file and kills the driver there has made Spark repeat a commit
that the broker knows.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from pyspark_mtl.limits import TEST_HOOK_HOLD_S

AFTER_COMMIT = "MTL_TEST_HOOK_AFTER_COMMIT"

_LOOK_S = 0.02


def after_commit(query: str, batch: int) -> None:
    """The broker has published a batch that Spark does not know to be published yet."""
    name = os.environ.get(AFTER_COMMIT)
    if not name:
        return
    _write(Path(name), f"{query} {batch}")
    held, until = Path(f"{name}.hold"), time.monotonic() + TEST_HOOK_HOLD_S
    while held.exists() and time.monotonic() < until:
        time.sleep(_LOOK_S)  # another process removes the file, or kills this one


def _write(path: Path, text: str) -> None:
    """All of `text` under `path`, or nothing: durable before it has the name."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
