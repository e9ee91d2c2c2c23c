"""A copy of a broker's data directory, and its restoration, as an administrator's backup does."""

from __future__ import annotations

import shutil
from pathlib import Path

from mtl.testing import RunningBroker


def copy(broker: RunningBroker, to: Path, *, stopped: bool) -> Path:
    """Copy the data of an idle broker, or of one that is stopped for the copy and started again."""
    if stopped:
        broker.stop()
    shutil.copytree(broker.data, to)
    if stopped:
        broker.start()
    return to


def put_back(broker: RunningBroker, copied: Path) -> None:
    """Stop the broker, replace its data by the copy, and start it."""
    broker.stop()
    shutil.rmtree(broker.data)
    shutil.copytree(copied, broker.data)
    broker.start()
