"""A copy of a broker's data directory, put in its place again: what an administrator's backup does."""

from __future__ import annotations

import shutil
from pathlib import Path

from mtl.testing import RunningBroker


def copy(broker: RunningBroker, to: Path, *, stopped: bool) -> Path:
    """Copy the data of a broker that has nothing to do, or that is stopped for it and started again."""
    if stopped:
        broker.stop()
    shutil.copytree(broker.data, to)
    if stopped:
        broker.start()
    return to


def put_back(broker: RunningBroker, copied: Path) -> None:
    """Stop, put the copy in the place of the data, and start."""
    broker.stop()
    shutil.rmtree(broker.data)
    shutil.copytree(copied, broker.data)
    broker.start()
