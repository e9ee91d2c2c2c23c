"""The "log" profile: durable, replayable, positioned reads (PROTOCOL.md). Spark's own."""

from __future__ import annotations

from mtl.profiles.base import Profile
from mtl.wire import control as w

LOG = Profile(
    name="log",
    confirms=frozenset({"none", "full"}),
    any_reader=False,
    durable=True,
    classes=frozenset(
        {
            w.LeaseClose,
            w.ResourceCreate,
            w.ResourceList,
            w.ResourceDescribe,
            w.ResourceDelete,
            w.ResourceLocate,
            w.CursorOpen,
            w.CursorDescribe,
            w.CursorDelete,
            w.StageCommit,
            w.StageAbort,
            w.StageDescribe,
            w.StageForget,
        }
    ),
)
