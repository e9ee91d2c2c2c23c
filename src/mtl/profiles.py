"""Profiles: the ways to use resources (RFC 11 "Selecting a Profile"; MTL-02, MTL-40). Data only.

The broker's conditions use these declarations and never a profile's name.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class CommandClass(StrEnum):
    """A class of commands (MTL-40). The broker's table of commands assigns each command to a class."""

    CONNECTION = "connection"
    DURABLE = "durable"  # resources that are kept, their queues and stages
    CURSORS = "cursors"  # durable positions of groups


@dataclass(frozen=True, slots=True)
class Profile:
    """One way to use resources.

    `confirms`: the supported confirmation models; any other gets 501 (MTL-49). `fixed_resources`: the only resources,
    empty where resources are created by request. `any_reader`: whether a reader may name several resources or none
    ("any and all", MTL-46). `competing`: whether readers share the contents of a queue; otherwise each gets all.
    `classes`: the classes of commands besides Connection (MTL-40).
    """

    name: str
    confirms: frozenset[str]
    any_reader: bool
    durable: bool
    competing: bool = False
    fixed_resources: tuple[str, ...] = ()
    classes: frozenset[CommandClass] = field(default_factory=frozenset)


TEST = Profile(
    name="test",
    confirms=frozenset({"none"}),
    any_reader=True,
    durable=False,
    fixed_resources=("resource",),
)
"""Exactly as RFC 11 defines it (MTL-114 to 117), with one resource."""

LOG = Profile(
    name="log",
    confirms=frozenset({"none", "full"}),
    any_reader=False,
    durable=True,
    classes=frozenset({CommandClass.DURABLE, CommandClass.CURSORS}),
)
"""Durable, replayable, positioned reads (PROTOCOL.md 5). The Spark connector uses it."""

QUEUE = Profile(
    name="queue",
    confirms=frozenset({"none", "full"}),
    any_reader=True,
    durable=True,
    competing=True,
    classes=frozenset({CommandClass.DURABLE}),
)
"""Consumers compete for the contents of the same durable resources (PROTOCOL.md 6)."""

PROFILES: dict[str, Profile] = {profile.name: profile for profile in (TEST, LOG, QUEUE)}
"""Every profile by its name in lower case; names are case-insensitive (MTL-39)."""
