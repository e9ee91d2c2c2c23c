"""Append-only logs of opaque chunks on a disk: segments, recovery, retention. Knows neither MTL nor ZeroMQ.

Start with writer.py and reader.py; the formats are in chunk.py and segment.py, what a crash may leave in recovery.py.
"""

from __future__ import annotations

from mtl.log.cache import ReadCache
from mtl.log.change import (
    Adopted,
    Appended,
    Change,
    ChunkRef,
    Cut,
    Durability,
    LogOptions,
    Rolled,
    Sealed,
    StagePart,
    Synced,
    Trimmed,
)
from mtl.log.chunk import STAGE_WRITER, NewChunk, RunEntry
from mtl.log.extent import Extent, extent
from mtl.log.files import Disk, File, Lock, RealDisk
from mtl.log.frugal import FrugalDisk
from mtl.log.log import create_log, delete_log, give_manifest, open_log
from mtl.log.manifest import Epoch, History
from mtl.log.reader import LogReader
from mtl.log.recovery import RecoveryReport
from mtl.log.retention import Hold, Loss, RetentionPlan, RetentionPolicy, SegmentInfo, plan
from mtl.log.stage import stage_parts
from mtl.log.verify import Problem, SegmentReport, verify_log
from mtl.log.writer import LogWriter

__all__ = [
    "STAGE_WRITER",
    "Adopted",
    "Appended",
    "Change",
    "ChunkRef",
    "Cut",
    "Disk",
    "Durability",
    "Epoch",
    "Extent",
    "File",
    "FrugalDisk",
    "History",
    "Hold",
    "Lock",
    "LogOptions",
    "LogReader",
    "LogWriter",
    "Loss",
    "NewChunk",
    "Problem",
    "ReadCache",
    "RealDisk",
    "RecoveryReport",
    "RetentionPlan",
    "RetentionPolicy",
    "Rolled",
    "RunEntry",
    "Sealed",
    "SegmentInfo",
    "SegmentReport",
    "StagePart",
    "Synced",
    "Trimmed",
    "create_log",
    "delete_log",
    "extent",
    "give_manifest",
    "open_log",
    "plan",
    "stage_parts",
    "verify_log",
]
