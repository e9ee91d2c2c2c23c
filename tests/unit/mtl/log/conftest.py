"""Disks: the real one in pytest's directory, the same with every file closed between uses, the twin in memory."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from mtl.log.files import Disk, RealDisk
from mtl.log.frugal import FrugalDisk
from tests.support.faulty_disk import FaultyDisk


@pytest.fixture(params=["real", "frugal", "twin"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Disk, str]:
    """A disk and an existing directory on it, for tests that every disk must pass."""
    if request.param == "real":
        return RealDisk(), str(tmp_path)
    if request.param == "frugal":
        return FrugalDisk(RealDisk(), 0), str(tmp_path)
    disk = FaultyDisk(random.Random(1))
    disk.make_dir("/data")
    disk.fsync_dir("/")
    return disk, "/data"


@pytest.fixture
def twin() -> FaultyDisk:
    disk = FaultyDisk(random.Random(1))
    disk.make_dir("/data")
    disk.fsync_dir("/")
    return disk
