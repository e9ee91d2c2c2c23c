"""Checks and their findings: the verdict, and the frames that led to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, TypeVar

T = TypeVar("T")


class RequirementLevel(StrEnum):
    """The level of a requirement."""

    MUST = "must"
    SHOULD = "should"


class CheckVerdict(StrEnum):
    """The result of a check."""

    MET = "met"
    FAILED = "FAILED"
    NOT_SEEN = "not seen"


class Failed(Exception):
    """The requirement is not met; the message has the expected and the actual result."""


class NotSeen(Exception):
    """The requirement could not be tested; the message has the reason."""


@dataclass(frozen=True)
class RequirementCheck(Generic[T]):
    """One requirement, and its test. `profiles` are those to which it applies; empty means all."""

    requirement: str
    level: RequirementLevel
    text: str
    test: Callable[[T], None]
    profiles: frozenset[str] = frozenset()

    def concerns(self, profile: str) -> bool:
        """Whether the check applies to this profile."""
        return not self.profiles or profile in self.profiles


@dataclass
class CheckResult:
    """The verdict of one check. `frames` are its messages in order, as text with their direction."""

    requirement: str
    level: RequirementLevel
    text: str
    verdict: CheckVerdict
    reason: str = ""
    frames: list[str] = field(default_factory=list)

    @property
    def is_violation(self) -> bool:
        """Whether a MUST is not met."""
        return self.verdict is CheckVerdict.FAILED and self.level is RequirementLevel.MUST


class Checks(Generic[T]):
    """A registry of checks, with decorators for test functions."""

    def __init__(self) -> None:
        self.all: list[RequirementCheck[T]] = []

    def must(
        self, requirement: str, text: str, *profiles: str
    ) -> Callable[[Callable[[T], None]], Callable[[T], None]]:
        """Register a test of a MUST; only for these profiles, if any are named."""
        return self._add(requirement, RequirementLevel.MUST, text, profiles)

    def should(
        self, requirement: str, text: str, *profiles: str
    ) -> Callable[[Callable[[T], None]], Callable[[T], None]]:
        """Register a test of a SHOULD."""
        return self._add(requirement, RequirementLevel.SHOULD, text, profiles)

    def _add(
        self, requirement: str, level: RequirementLevel, text: str, profiles: tuple[str, ...]
    ) -> Callable[[Callable[[T], None]], Callable[[T], None]]:
        def add(test: Callable[[T], None]) -> Callable[[T], None]:
            self.all.append(RequirementCheck(requirement, level, text, test, frozenset(profiles)))
            return test

        return add


def run(check: RequirementCheck[T], subject: T, frames: list[str]) -> CheckResult:
    """Run one check; `frames` grows meanwhile."""
    verdict, reason = CheckVerdict.MET, ""
    try:
        check.test(subject)
    except Failed as failed:
        verdict, reason = CheckVerdict.FAILED, str(failed)
    except NotSeen as unseen:
        verdict, reason = CheckVerdict.NOT_SEEN, str(unseen)
    return CheckResult(check.requirement, check.level, check.text, verdict, reason, list(frames))
