"""The specification of a round, and its result."""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.checker import Finding

SEGMENT_BYTES = 100_000
"""Small, so that a round has many segments, rolls and adopted ones."""


@dataclass(frozen=True)
class Spec:
    """A round: a kind of fault, the number of faults, and the seed of all random choices."""

    fault: str
    count: int
    seed: int


@dataclass
class Outcome:
    """The result of a round: the number of faults, of contents at the end, and the broken guarantees."""

    spec: Spec
    count: int = 0
    findings: list[Finding] = field(default_factory=list)
    contents: int = 0
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        return bool(self.findings) or self.count < self.spec.count


def ended(outcome: Outcome, place: Path, began: float) -> Outcome:
    """The round is over; its directory stays where something was found."""
    outcome.seconds = time.monotonic() - began
    if not outcome.failed:
        shutil.rmtree(place)
    return outcome
