"""The hostile scenarios in their small form; scripts/hostile runs the large form and prints the table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.hostile import scenarios  # noqa: F401  puts them into the table
from tests.hostile.harness import SCENARIOS, Arena, Scenario, arena, measure

SHARING = [scenario for scenario in SCENARIOS.values() if scenario.shares]


class Shared:
    """One broker for all scenarios that can share it; another one after a failure."""

    def __init__(self, places: pytest.TempPathFactory) -> None:
        self._places = places
        self._stack = ExitStack()
        self._arena: Arena | None = None

    def arena(self) -> Arena:
        if self._arena is None:
            self._arena = self._stack.enter_context(arena(self._places.mktemp("shared"), *SHARING))
        return self._arena

    def close(self) -> None:
        self._arena = None
        self._stack.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    made = Shared(tmp_path_factory)
    yield made
    made.close()


@pytest.mark.parametrize("scenario", SHARING, ids=lambda scenario: scenario.name)
def test_others_are_served(scenario: Scenario, shared: Shared) -> None:
    try:
        measure(scenario, shared.arena(), heavy=False)
    except BaseException:  # also a failed assertion: the next scenario gets a new broker
        shared.close()
        raise


@pytest.mark.parametrize(
    "scenario",
    [scenario for scenario in SCENARIOS.values() if not scenario.shares],
    ids=lambda scenario: scenario.name,
)
def test_others_are_served_and_memory_is_bounded(scenario: Scenario, tmp_path: Path) -> None:
    with arena(tmp_path, scenario) as made:
        measure(scenario, made, heavy=False)
