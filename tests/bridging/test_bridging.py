"""Five protocols on one resource: all of the matrix, and a part of the faults; scripts/bridge does all of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.bridging.ends import ENDS
from tests.bridging.faults import play
from tests.bridging.matrix import cross
from tests.bridging.places import Site, everything
from tests.bridging.sparks import pass_through
from tests.support.aio import in_loop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with everything(tmp_path_factory.mktemp("bridging")) as opened:
        yield opened


@pytest.mark.parametrize("consumer", ENDS)
@pytest.mark.parametrize("producer", ENDS)
def test_contents_of_each_protocol_are_received_by_each_other(
    site: Site, producer: str, consumer: str
) -> None:
    in_loop(cross)(site.places, ENDS[producer], ENDS[consumer])


@pytest.mark.spark
def test_each_protocol_sends_to_and_receives_from_a_running_query(
    site: Site, spark: SparkSession, tmp_path: Path
) -> None:
    passages = in_loop(pass_through)(site.places, spark, tmp_path / "checkpoint")
    assert [passage.name for passage in passages] == list(ENDS)


@pytest.mark.parametrize(
    ("protocol", "victim"),
    [("mc0", "door"), ("micromessage", "clients"), ("reactive", "broker"), ("mbws", "network")],
)
def test_acknowledged_contents_survive_kills(site: Site, protocol: str, victim: str) -> None:
    in_loop(play)(site, protocol, victim)
