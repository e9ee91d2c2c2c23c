"""Descriptors that only storage uses."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import pytest

from mtl.log import reserve
from mtl.log.limits import OPEN_FILES, RESERVED_FILES

Limits = tuple[int, int]


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> list[Limits]:
    """The limits that were set; the last one is valid."""
    found: list[Limits] = [(1_024, 4_096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: found[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: found.append(limits))
    return found


@pytest.mark.parametrize(
    ("hard", "soft", "files"),
    [
        (256, 192, 32),
        (40, 30, 16),
        (4_096, 4_096 - RESERVED_FILES, OPEN_FILES),
        (1 << 20, (1 << 20) - RESERVED_FILES, OPEN_FILES),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, OPEN_FILES),
    ],
)
def test_connections_leave_a_quarter_or_a_thousand(
    limits: list[Limits], hard: int, soft: int, files: int
) -> None:
    limits.append((64, hard))
    assert hard - reserve.reserved_files() == soft
    assert reserve.files_at_once() == files


def test_the_reserve_is_open_during_the_work_only(limits: list[Limits]) -> None:
    assert reserve.with_reserve(lambda: limits[-1]) == (4_096, 4_096)
    assert limits[-1] == (1_024, 4_096)
    with pytest.raises(OSError, match="no"):
        reserve.with_reserve(lambda: (_ for _ in ()).throw(OSError("no")))
    assert limits[-1] == (1_024, 4_096)


@pytest.mark.skipif(sys.platform != "linux", reason="macOS reports no hard limit")
def test_a_file_is_opened_at_the_soft_limit(tmp_path: Path) -> None:
    (tmp_path / "segment").write_bytes(b"x")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        soft = hard - 1
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            (tmp_path / "segment").open()
        with reserve.with_reserve((tmp_path / "segment").open) as file:
            assert file.read() == "x"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
