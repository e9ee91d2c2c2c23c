"""The kill matrix in its small form: every process once, at its hardest step. scripts/kills runs all of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kills.bench import Bench, bench
from tests.kills.matrix import KILLS, LIGHT

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A bench for all scenarios: most leave its Spark application alive."""
    with bench(tmp_path_factory.mktemp("kills")) as made:
        yield made


@pytest.mark.parametrize("name", LIGHT)
def test_every_content_is_copied_once_and_in_order(name: str, shared: Bench) -> None:
    (kill,) = [kill for kill in KILLS if kill.name == name]
    try:
        kill.play(shared, f"q{LIGHT.index(name)}")
    except AssertionError:
        shared.tidy()
        raise
