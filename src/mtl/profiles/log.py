"""The "log" profile: durable, replayable, positioned reads (PROTOCOL.md 5). The Spark connector uses it."""

from __future__ import annotations

from mtl.profiles.base import CommandClass, Profile

LOG = Profile(
    name="log",
    confirms=frozenset({"none", "full"}),
    any_reader=False,
    durable=True,
    classes=frozenset({CommandClass.DURABLE, CommandClass.CURSORS}),
)
