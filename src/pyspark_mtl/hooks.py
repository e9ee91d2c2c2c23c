"""Test hooks: they stop a process at a moment that a test cannot hit by timing. Off unless an environment variable
is set; no part of the connector depends on them.

MTL_TEST_HOOK_AFTER_COMMIT names a file. After the broker's answer to Stage.Commit, before `commit` returns to Spark,
the sink writes "QUERY_ID BATCH_ID" into that file. Then it waits while a file of the same name with ".hold" added
exists (at most limits.TEST_HOOK_HOLD_S). A test that kills the driver at this moment makes Spark repeat a commit that
the broker has already published.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from pyspark_mtl.limits import TEST_HOOK_HOLD_S

AFTER_COMMIT = "MTL_TEST_HOOK_AFTER_COMMIT"

_LOOK_S = 0.02


def after_commit(query: str, batch: int) -> None:
    """Called after the broker has published a batch, before Spark knows."""
    name = os.environ.get(AFTER_COMMIT)
    if not name:
        return
    _write(Path(name), f"{query} {batch}")
    held, until = Path(f"{name}.hold"), time.monotonic() + TEST_HOOK_HOLD_S
    while held.exists() and time.monotonic() < until:
        time.sleep(_LOOK_S)  # another process removes the file, or kills this one


def _write(path: Path, text: str) -> None:
    """Write `text` to `path` atomically: synced to the disk, then renamed."""
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(path)
