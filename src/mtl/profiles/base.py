"""What a profile declares. The broker reads these declarations; it has no profile names in its conditions."""

from __future__ import annotations

from dataclasses import dataclass, field

from mtl.wire import control as w

DURABLE: frozenset[type] = frozenset(
    {
        w.LeaseClose,
        w.ResourceCreate,
        w.ResourceList,
        w.ResourceDescribe,
        w.ResourceDelete,
        w.ResourceLocate,
        w.QueueDescribe,
        w.QueueDelete,
        w.StageCommit,
        w.StageAbort,
        w.StageDescribe,
        w.StageForget,
    }
)
"""The request types of every profile with resources that are kept."""


@dataclass(frozen=True, slots=True)
class Profile:
    """One way to use resources.

    `confirms` are the confirmation models it supports; any other gets 501 (MTL-49). `fixed_resources` are the only ones
    there are, or empty where resources are created by request. `any_reader` says whether a reader may name several
    resources or none ("any and all", MTL-46). `competing` readers share the contents of a queue; others see them all.
    `classes` are the request types beyond Connection that it defines
    (MTL-40).
    """

    name: str
    confirms: frozenset[str]
    any_reader: bool
    durable: bool
    competing: bool = False
    fixed_resources: tuple[str, ...] = ()
    classes: frozenset[type] = field(default_factory=frozenset)
