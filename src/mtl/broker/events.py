"""Events: the reports of one part of the broker to the parts that react to them.

A part gets the parts below it through its constructor. It reports to the parts above it through an event that it owns.
`assembly` says in one table which reactions follow which event, and in which order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, ParamSpec

P = ParamSpec("P")


class Event(Generic[P]):
    """Something that happens: calling it calls its reactions, if any."""

    __slots__ = ("_reactions",)

    def __init__(self) -> None:
        self._reactions: tuple[Callable[P, object], ...] = ()

    def leads_to(self, *reactions: Callable[P, object]) -> None:
        """Set the reactions, in the order in which they are called; they replace earlier ones."""
        self._reactions = reactions

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> None:
        for reaction in self._reactions:
            reaction(*args, **kwargs)
