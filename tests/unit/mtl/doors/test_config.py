from __future__ import annotations

from pathlib import Path

import pytest

from mtl.doors.config import DoorConfig, host_and_port, load
from mtl.errors import OptionError


def test_doors_are_tables_of_the_brokers_file(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text('data = "d"\n[doors.mc0]\nlisten = "tcp://127.0.0.1:1"\ncreate = []\n[doors.reactive]\n')
    assert load(path) == {"mc0": DoorConfig(listen="tcp://127.0.0.1:1", create=()), "reactive": DoorConfig()}
    path.write_text('data = "d"\n')
    assert load(path) == {}
    assert load(None) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[doors.mc0]\nlitsen = 1", "litsen"),
        ("[doors.mc0]\nmax-sessions = 0", "above 0"),
        ('[doors.mbws]\nkey-file = "k"', "belong together"),
        ("[doors.mc0", "broker.toml"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(text)
    with pytest.raises(OptionError, match=words):
        load(path)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot read"):
        load(tmp_path / "none")


def test_places() -> None:
    assert host_and_port("127.0.0.1:80") == ("127.0.0.1", 80)
    assert host_and_port("[::1]:0") == ("::1", 0)
    for wrong in ("80", ":80", "host:", "host:x", "host:99999"):
        with pytest.raises(OptionError):
            host_and_port(wrong)
