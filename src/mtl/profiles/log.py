"""The "log" profile: durable, replayable, positioned reads (PROTOCOL.md 5). Spark's own."""

from __future__ import annotations

from mtl.profiles.base import DURABLE, Profile
from mtl.wire import control as w

LOG = Profile(
    name="log",
    confirms=frozenset({"none", "full"}),
    any_reader=False,
    durable=True,
    classes=DURABLE | {w.CursorOpen, w.CursorDescribe, w.CursorReset, w.CursorDelete},
)
