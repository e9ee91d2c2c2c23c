"""A check, its verdict, and the frames that led to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class Level(StrEnum):
    """How much a requirement weighs."""

    MUST = "must"
    SHOULD = "should"


class Verdict(StrEnum):
    """What a check found."""

    MET = "met"
    FAILED = "FAILED"
    NOT_SEEN = "not seen"


class Failed(Exception):
    """The requirement is not met; the message says what came instead of what."""


class NotSeen(Exception):
    """It could not be tested; the message says why."""


@dataclass(frozen=True)
class Check(Generic[T]):
    """One requirement, and what tests it. `profiles` are those that it makes sense for; all where there is none."""

    requirement: str
    level: Level
    text: str
    test: Callable[[T], None]
    profiles: frozenset[str] = frozenset()

    def concerns(self, profile: str) -> bool:
        """Whether it is tested under this profile."""
        return not self.profiles or profile in self.profiles


@dataclass
class Finding:
    """The verdict of one check. `frames` are (direction, frames) in their order, as text."""

    requirement: str
    level: Level
    text: str
    verdict: Verdict
    reason: str = ""
    frames: list[str] = field(default_factory=list)

    @property
    def is_violation(self) -> bool:
        """Whether something that MUST be so is not."""
        return self.verdict is Verdict.FAILED and self.level is Level.MUST


class Checks(Generic[T]):
    """A list that functions put themselves on."""

    def __init__(self) -> None:
        self.all: list[Check[T]] = []

    def must(
        self, requirement: str, text: str, *profiles: str
    ) -> Callable[[Callable[[T], None]], Callable[[T], None]]:
        """Of a MUST; under these profiles only, if any are named."""
        return self._add(requirement, Level.MUST, text, profiles)

    def should(
        self, requirement: str, text: str, *profiles: str
    ) -> Callable[[Callable[[T], None]], Callable[[T], None]]:
        """Of a SHOULD."""
        return self._add(requirement, Level.SHOULD, text, profiles)

    def _add(
        self, requirement: str, level: Level, text: str, profiles: tuple[str, ...]
    ) -> Callable[[Callable[[T], None]], Callable[[T], None]]:
        def add(test: Callable[[T], None]) -> Callable[[T], None]:
            self.all.append(Check(requirement, level, text, test, frozenset(profiles)))
            return test

        return add


def run(check: Check[T], subject: T, frames: list[str]) -> Finding:
    """The verdict of one check; `frames` grows while it runs."""
    verdict, reason = Verdict.MET, ""
    try:
        check.test(subject)
    except Failed as failed:
        verdict, reason = Verdict.FAILED, str(failed)
    except NotSeen as unseen:
        verdict, reason = Verdict.NOT_SEEN, str(unseen)
    return Finding(check.requirement, check.level, check.text, verdict, reason, list(frames))
