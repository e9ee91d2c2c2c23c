from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtl.net import machine


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """The cached mark is cleared before and after, so that other tests get the real one."""
    machine.machine_mark.cache_clear()
    yield
    machine.machine_mark.cache_clear()


def test_all_processes_of_a_machine_have_the_same_mark() -> None:
    code = "from mtl.net.machine import machine_mark; print(machine_mark())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert other.stdout.strip() == str(machine.machine_mark())


def test_the_mark_is_not_the_boot_id_and_changes_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = []
    for boot in ("one", "two"):
        (tmp_path / "boot_id").write_text(boot)
        monkeypatch.setattr(machine, "_BOOT_ID", tmp_path / "boot_id")
        machine.machine_mark.cache_clear()
        marks.append(machine.machine_mark())

    assert None not in marks
    assert len({*marks, "one", "two"}) == 4


def test_a_system_without_boot_id_has_no_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_BOOT_ID", tmp_path / "missing")

    assert machine.machine_mark() is None
