"""The generation file beside the database: it only grows, and a damaged one is detected."""

from __future__ import annotations

from pathlib import Path

import pytest

from mtl.errors import Damaged, StorageFailed
from mtl.storage.generation import GenerationFile, GenerationMark


def test_the_generation_only_grows(tmp_path: Path) -> None:
    file = GenerationFile(tmp_path)
    assert file.read() is None
    for generation, kept in ((5, 5), (3, 5), (6, 6)):
        file.write(GenerationMark("0123abcd", generation), sync=generation == 6)
        assert file.read() == GenerationMark("0123abcd", kept)
    file.write(GenerationMark("0123abcd", 2), back=True)
    assert file.read() == GenerationMark("0123abcd", 2)
    file.write(GenerationMark("another", 1))
    assert file.read() == GenerationMark("another", 1)


def test_every_flipped_bit_of_a_generation_is_detected(tmp_path: Path) -> None:
    file = GenerationFile(tmp_path)
    file.write(GenerationMark("0123abcd", 5))
    octets = file.path.read_bytes()
    for at in range(len(octets)):
        for bit in range(8):
            file.path.write_bytes(octets[:at] + bytes([octets[at] ^ 1 << bit]) + octets[at + 1 :])
            with pytest.raises(Damaged, match="does not verify"):
                file.read()
    file.path.write_bytes(b"")
    with pytest.raises(Damaged):
        file.read()
    file.write(GenerationMark("0123abcd", 1))
    assert file.read() == GenerationMark("0123abcd", 1)


def test_os_errors_become_named_ones(tmp_path: Path) -> None:
    (tmp_path / "generation").mkdir()
    with pytest.raises(StorageFailed):
        GenerationFile(tmp_path).read()
    with pytest.raises(StorageFailed):
        GenerationFile(tmp_path).write(GenerationMark("a", 1))
