"""What a profile declares. The broker reads these declarations; it has no profile names in its conditions."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class CommandClass(StrEnum):
    """A class of commands (MTL-40). The broker's table of commands says which command belongs to which."""

    CONNECTION = "connection"
    DURABLE = "durable"  # resources that are kept, their queues and stages
    CURSORS = "cursors"  # durable positions of groups


@dataclass(frozen=True, slots=True)
class Profile:
    """One way to use resources.

    `confirms` are the confirmation models it supports; any other gets 501 (MTL-49). `fixed_resources` are the only ones
    there are, or empty where resources are created by request. `any_reader` says whether a reader may name several
    resources or none ("any and all", MTL-46). `competing` readers share the contents of a queue; others see them all.
    `classes` are the classes of commands beyond Connection that it has (MTL-40).
    """

    name: str
    confirms: frozenset[str]
    any_reader: bool
    durable: bool
    competing: bool = False
    fixed_resources: tuple[str, ...] = ()
    classes: frozenset[CommandClass] = field(default_factory=frozenset)
