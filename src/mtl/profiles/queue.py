"""The "queue" profile: consumers compete for the contents of the same durable resources (PROTOCOL.md 6)."""

from __future__ import annotations

from mtl.profiles.base import CommandClass, Profile

QUEUE = Profile(
    name="queue",
    confirms=frozenset({"none", "full"}),
    any_reader=True,
    durable=True,
    competing=True,
    classes=frozenset({CommandClass.DURABLE}),
)
