"""Bounds of the code under test, small enough to be reached in small runs; another choice for every seed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from types import ModuleType

from mtl.broker import limits as broker_limits
from mtl.broker.queues import limits as queue_limits
from mtl.storage import limits as storage_limits

_CHOICES: dict[str, tuple[float, ...]] = {
    "ADOPT_OCTETS": (256, 1_500, storage_limits.ADOPT_OCTETS),
    "EXPIRY_CHECK_S": (0.2, broker_limits.EXPIRY_CHECK_S),
    "GROUP_OCTETS": (300, broker_limits.GROUP_OCTETS),
    "INBOUND_OCTETS": (4_000, broker_limits.INBOUND_OCTETS, broker_limits.INBOUND_OCTETS),
    "QUEUE_AHEAD": (1, 10, queue_limits.QUEUE_AHEAD),
    "QUEUE_BURY": (1, queue_limits.QUEUE_BURY),
    "QUEUE_DELIVERIES": (1, 3, queue_limits.QUEUE_DELIVERIES),
    "QUEUE_LOOK": (1, queue_limits.QUEUE_LOOK),
    "QUEUE_OUTSTANDING": (3, queue_limits.QUEUE_OUTSTANDING, queue_limits.QUEUE_OUTSTANDING),
    "QUEUE_RANGES": (2, queue_limits.QUEUE_RANGES, queue_limits.QUEUE_RANGES),
    "QUEUE_RETURNED": (2, queue_limits.QUEUE_RETURNED, queue_limits.QUEUE_RETURNED),
    "RETENTION_CHECK_S": (0.2, broker_limits.RETENTION_CHECK_S),
    "TURN_CONTENTS": (1, 5, broker_limits.TURN_CONTENTS),
    "TURN_OCTETS": (500, broker_limits.TURN_OCTETS),
    "TURN_SENDS": (1, 3, broker_limits.TURN_SENDS),
}


@contextmanager
def drawn(random: Random) -> Iterator[None]:
    """Set every bound to one of its choices for the duration of the run."""
    before = {name: getattr(_home(name), name) for name in _CHOICES}
    try:
        for name, choices in _CHOICES.items():
            setattr(_home(name), name, random.choice(choices))
        yield
    finally:
        for name, value in before.items():
            setattr(_home(name), name, value)


def _home(name: str) -> ModuleType:
    return next(home for home in (queue_limits, broker_limits, storage_limits) if hasattr(home, name))
