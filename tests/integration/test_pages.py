"""The code in README.md and docs works as described: it is run with a real broker and a real Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mtl.testing import RunningBroker
from tests.support import pages

RUN = [page for page in pages.pages() if pages.runs(page)]


def _name(page: Path) -> str:
    return page.relative_to(pages.ROOT).as_posix()


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory of the page."""
    directory = tmp_path / "page"
    directory.mkdir()
    monkeypatch.chdir(directory)
    return directory


@pytest.fixture
def run(request: pytest.FixtureRequest, place: Path, mtl_broker: RunningBroker) -> Iterator[pages.Run]:
    page = request.param
    spark = request.getfixturevalue("spark") if pages.needs_spark(page) else None
    running = pages.Run(page, place, mtl_broker, spark)
    yield running
    running.close()


@pytest.mark.parametrize("run", [x for x in RUN if not pages.needs_spark(x)], indirect=True, ids=_name)
def test_the_code_of_a_page_runs(run: pages.Run) -> None:
    run.all()


@pytest.mark.spark
@pytest.mark.parametrize("run", [x for x in RUN if pages.needs_spark(x)], indirect=True, ids=_name)
def test_the_code_of_a_page_runs_with_spark(run: pages.Run) -> None:
    run.all()
