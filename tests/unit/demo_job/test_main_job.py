"""The demo's verdict: every error gives a nonzero exit code. Whole runs are in tests/integration."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import main_job
import pytest
from demo_job import flights
from demo_job.processes import Failed
from main_job import DAILY, Demo

from mtl.errors import Unreachable

Rows = list[tuple[flights.Key, flights.Figures]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("demo")


@pytest.fixture(scope="module")
def demo(place: Path) -> Demo:
    return Demo(place, sample=1_000, batches=12, seed=1, kill=False)


@pytest.fixture
def rows(demo: Demo) -> Rows:
    return list(demo._expected.items())


def check(demo: Demo, rows: Rows, place: Path, contents: int | None = None) -> None:
    held = len(rows) if contents is None else contents
    described = {DAILY: SimpleNamespace(contents=held)}
    connection = cast("Any", SimpleNamespace(describe=lambda _names: described))
    demo._check(connection, rows, place / "demo.png")


def test_the_expected_result_passes_and_is_plotted(demo: Demo, rows: Rows, place: Path) -> None:
    check(demo, rows, place)
    assert (place / "demo.png").exists()


def test_a_lost_window_fails(demo: Demo, rows: Rows, place: Path) -> None:
    with pytest.raises(Failed, match=r"^missing: "):
        check(demo, rows[1:], place)


def test_a_doubled_window_fails(demo: Demo, rows: Rows, place: Path) -> None:
    with pytest.raises(Failed, match=r"^more than once: "):
        check(demo, [*rows, rows[0]], place)


@pytest.mark.parametrize("figure", range(len(flights.FIGURES)))
def test_a_figure_that_is_off_by_one_fails(demo: Demo, rows: Rows, place: Path, figure: int) -> None:
    key, figures = rows[0]
    wrong = tuple((value or 0) + (number == figure) for number, value in enumerate(figures))
    with pytest.raises(Failed, match=f"{flights.FIGURES[figure]} .* instead of"):
        check(demo, [(key, wrong), *rows[1:]], place)


def test_an_unread_content_fails(demo: Demo, rows: Rows, place: Path) -> None:
    with pytest.raises(Failed, match="has 1,000,000 contents"):
        check(demo, rows, place, contents=1_000_000)


def test_a_failure_sets_the_exit_code_and_keeps_all_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(self: Demo, picture: Path) -> None:
        (tmp_path / "run" / "evidence").touch()
        raise Unreachable("tcp://127.0.0.1:1", 30.0, "a test")

    monkeypatch.setattr(Demo, "run", run)
    monkeypatch.setattr("sys.argv", ["demo", "--sample", "1000", "--keep", str(tmp_path / "run")])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    assert main_job.main() == 1
    assert (tmp_path / "run" / "evidence").exists()
    assert "FAILED: no answer from" in capsys.readouterr().err


def test_a_directory_that_is_not_empty_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    monkeypatch.setattr("sys.argv", ["demo", "--keep", str(tmp_path)])
    monkeypatch.setattr("signal.signal", lambda *_: None)
    with pytest.raises(SystemExit, match="is not empty"):
        main_job.main()
