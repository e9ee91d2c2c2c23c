"""Bounds of the code under test, made small enough to be met by small runs; another choice for every seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random

from mtl import limits

_CHOICES: dict[str, tuple[int, ...]] = {
    "ADOPT_OCTETS": (256, 1_500, limits.ADOPT_OCTETS),
    "GROUP_OCTETS": (300, limits.GROUP_OCTETS),
    "INBOUND_OCTETS": (4_000, limits.INBOUND_OCTETS, limits.INBOUND_OCTETS),
    "QUEUE_AHEAD": (1, 10, limits.QUEUE_AHEAD),
    "QUEUE_BURY": (1, limits.QUEUE_BURY),
    "QUEUE_LOOK": (1, limits.QUEUE_LOOK),
    "QUEUE_OUTSTANDING": (3, limits.QUEUE_OUTSTANDING, limits.QUEUE_OUTSTANDING),
    "QUEUE_RANGES": (2, limits.QUEUE_RANGES, limits.QUEUE_RANGES),
    "QUEUE_RETURNED": (2, limits.QUEUE_RETURNED, limits.QUEUE_RETURNED),
    "TURN_CONTENTS": (1, 5, limits.TURN_CONTENTS),
    "TURN_OCTETS": (500, limits.TURN_OCTETS),
    "TURN_SENDS": (1, 3, limits.TURN_SENDS),
}


@contextmanager
def drawn(random: Random) -> Iterator[None]:
    """Set every bound to one of its choices for as long as the run takes."""
    before = {name: getattr(limits, name) for name in _CHOICES}
    try:
        for name, choices in _CHOICES.items():
            setattr(limits, name, random.choice(choices))
        yield
    finally:
        for name, value in before.items():
            setattr(limits, name, value)
