from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtl.broker.runtime.users import Users
from mtl.errors import DirectoryInUse, OptionError
from mtl.storage.directory import DirectoryEngine


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir(mode=0o700)
    return tmp_path / "data"


@pytest.fixture
def engine(data: Path) -> Iterator[DirectoryEngine]:
    engine = DirectoryEngine(str(data), 1 << 20)
    engine.restore()
    yield engine
    engine.close(lambda _: None)


def test_free_space_is_that_of_the_file_system(engine: DirectoryEngine, data: Path) -> None:
    observation, room = engine.observe(), os.statvfs(data)
    assert observation.total == room.f_blocks * room.f_frsize
    assert observation.free is not None
    assert 0 < observation.free <= observation.total


def test_users_changed_by_another_process_are_observed_once(engine: DirectoryEngine, data: Path) -> None:
    assert engine.observe().users is None
    with Users(data) as users:
        users.add("etl", None, [])
    assert [user.name for user in engine.observe().users or ()] == ["etl"]
    assert engine.observe().users is None


def test_a_missing_directory_is_logged_and_users_are_still_observed(
    engine: DirectoryEngine, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Users(data) as users:
        users.add("etl", None, [])
    engine._data = str(data / "gone")
    with caplog.at_level(logging.ERROR):
        observation = engine.observe()
    assert "could not be measured" in caplog.text
    assert observation.free is None
    assert [user.name for user in observation.users or ()] == ["etl"]


def test_a_directory_is_used_by_one_engine(engine: DirectoryEngine, data: Path) -> None:
    with pytest.raises(DirectoryInUse):
        DirectoryEngine(str(data), 1 << 20)
    engine.close(lambda _: None)
    DirectoryEngine(str(data), 1 << 20).close(lambda _: None)


def test_a_failed_opening_leaves_no_lock(data: Path) -> None:
    (data / "broker.db").mkdir()
    with pytest.raises(Exception, match=r"broker\.db"):
        DirectoryEngine(str(data), 1 << 20)
    shutil.rmtree(data / "broker.db")
    DirectoryEngine(str(data), 1 << 20).close(lambda _: None)


def test_a_missing_directory_is_refused(data: Path) -> None:
    with pytest.raises(OptionError, match="cannot use"):
        DirectoryEngine(str(data / "nothing"), 1 << 20)


def test_local_readers_get_the_resolved_directory(engine: DirectoryEngine, data: Path) -> None:
    assert engine.directory == data.resolve()
