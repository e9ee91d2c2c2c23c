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


def test_the_room_is_that_of_the_file_system(engine: DirectoryEngine, data: Path) -> None:
    seen, room = engine.observe(), os.statvfs(data)
    assert seen.total == room.f_blocks * room.f_frsize
    assert seen.free is not None
    assert 0 < seen.free <= seen.total


def test_users_that_somebody_else_changed_are_seen_once(engine: DirectoryEngine, data: Path) -> None:
    assert engine.observe().users is None
    with Users(data) as users:
        users.add("etl", None, [])
    assert [user.name for user in engine.observe().users or ()] == ["etl"]
    assert engine.observe().users is None


def test_a_directory_that_is_gone_is_reported_and_users_are_looked_for(
    engine: DirectoryEngine, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Users(data) as users:
        users.add("etl", None, [])
    engine._data = str(data / "gone")
    with caplog.at_level(logging.ERROR):
        seen = engine.observe()
    assert "could not be measured" in caplog.text
    assert seen.free is None
    assert [user.name for user in seen.users or ()] == ["etl"]


def test_one_engine_at_a_time_has_a_directory(engine: DirectoryEngine, data: Path) -> None:
    with pytest.raises(DirectoryInUse):
        DirectoryEngine(str(data), 1 << 20)
    engine.close(lambda _: None)
    DirectoryEngine(str(data), 1 << 20).close(lambda _: None)


def test_what_fails_while_it_opens_leaves_no_lock(data: Path) -> None:
    (data / "broker.db").mkdir()
    with pytest.raises(Exception, match=r"broker\.db"):
        DirectoryEngine(str(data), 1 << 20)
    shutil.rmtree(data / "broker.db")
    DirectoryEngine(str(data), 1 << 20).close(lambda _: None)


def test_a_directory_that_is_not_there(data: Path) -> None:
    with pytest.raises(OptionError, match="cannot use"):
        DirectoryEngine(str(data / "nothing"), 1 << 20)


def test_readers_on_this_machine_find_the_files_in_it(engine: DirectoryEngine, data: Path) -> None:
    assert engine.directory == data.resolve()
