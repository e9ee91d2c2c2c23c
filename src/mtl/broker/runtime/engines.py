"""Which storage engine a broker has, by its setting `data`."""

from __future__ import annotations

from pathlib import Path

from mtl.broker.runtime.config import BrokerConfig
from mtl.net.private import make_data_directory
from mtl.storage.api import Engine
from mtl.storage.directory import DirectoryEngine
from mtl.storage.memory import Memory, MemoryEngine


def open_engine(config: BrokerConfig) -> Engine:
    """The engine, for this process alone. Raises `OptionError` for a directory that cannot be used, `DirectoryInUse`,
    `StorageError`.
    """
    if config.in_memory:
        return MemoryEngine(Memory(config.memory_bytes))
    make_data_directory(Path(config.data))
    return DirectoryEngine(config.data, config.segment_bytes)
