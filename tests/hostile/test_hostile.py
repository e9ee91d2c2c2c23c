"""The hostile scenarios in their small form; scripts/hostile runs the large form and prints the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hostile import scenarios  # noqa: F401  puts them into the table
from tests.hostile.harness import SCENARIOS, Scenario, measure


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_others_are_served_and_memory_is_bounded(scenario: Scenario, tmp_path: Path) -> None:
    measure(scenario, tmp_path, heavy=False)
