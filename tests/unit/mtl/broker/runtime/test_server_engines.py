from __future__ import annotations

from pathlib import Path

import pytest

from mtl.broker.runtime.config import BrokerConfig
from mtl.broker.runtime.server import open_engine
from mtl.errors import OptionError
from mtl.storage.directory import DirectoryEngine
from mtl.storage.memory import MemoryEngine


def test_a_path_is_created_as_data_directory(tmp_path: Path) -> None:
    engine = open_engine(BrokerConfig(data=str(tmp_path / "a" / "b")))
    assert isinstance(engine, DirectoryEngine)
    assert engine.close(lambda _: None) == {}
    assert (tmp_path / "a" / "b" / "broker.db").exists()


def test_memory_creates_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    engine = open_engine(BrokerConfig(data="memory:", memory_bytes=1 << 20))
    assert isinstance(engine, MemoryEngine)
    assert engine.observe().total == 1 << 20
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_cannot_be_created_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="cannot use"):
        open_engine(BrokerConfig(data=str(tmp_path / "file" / "data")))


def test_a_directory_may_be_named_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    engine = open_engine(BrokerConfig(data="./memory:"))
    assert isinstance(engine, DirectoryEngine)
    engine.close(lambda _: None)
