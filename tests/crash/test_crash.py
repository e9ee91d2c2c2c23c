"""Crashes in their small form; scripts/crash plays the large one and prints the table."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.image import _File
from tests.crash.machine import ForkServer
from tests.crash.outcomes import Spec
from tests.crash.rounds import play
from tests.crash.running import LIGHT
from tests.crash.shim import build

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD, pidfd and /proc are Linux's")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServer]:
    with ForkServer(build(tmp_path_factory.mktemp("shim"))) as made:
        yield made


@pytest.mark.parametrize(("fault", "count"), LIGHT.items())
def test_no_guarantee_is_broken(fault: str, count: int, server: ForkServer, tmp_path: Path) -> None:
    outcome = play(Spec(fault, count, 1), server, tmp_path / "round")
    assert outcome.count == count
    assert not outcome.findings


def test_a_disk_without_syncs_is_detected(
    server: ForkServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_File, "sync", lambda *_: None)
    outcome = play(Spec("power cut", 10, 1), server, tmp_path / "round")
    assert outcome.findings
