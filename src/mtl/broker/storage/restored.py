"""What was on disk when the broker starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mtl.broker.storage.records import AnyRecord
from mtl.broker.storage.rows import RecordDamage
from mtl.log import LogReader

OpenedLog = tuple[LogReader, dict[int, int]]
"""A log as it was opened: its reading half and its table of publishing numbers."""


@dataclass(frozen=True, slots=True)
class Restored:
    """Every record, and those that cannot be read. Logs are opened by `OpenLog`."""

    records: Sequence[AnyRecord] = ()
    damages: Sequence[RecordDamage] = ()
