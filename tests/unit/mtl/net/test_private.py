"""Files of passwords and data directories, by their modes."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mtl.broker.runtime.users import Users
from mtl.client.settings import read_password
from mtl.errors import OptionError
from mtl.net.private import make_data_directory


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that all users can enter, like its parents; pytest's own directories are private."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        yield Path(place)


def password_in(place: Path, mode: int) -> Path:
    file = place / "password"
    file.write_text("hunter22\n")
    file.chmod(mode)
    return file


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_password_readable_by_others_is_an_error_that_names_the_fix(open_place: Path, mode: int) -> None:
    with pytest.raises(OptionError, match=f"mode {mode:o}.*chmod 600") as refused:
        read_password(password_in(open_place, mode))
    assert "hunter22" not in str(refused.value)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o755, 0o777])
def test_private_modes_and_those_of_mounts_are_accepted(open_place: Path, mode: int) -> None:
    assert read_password(password_in(open_place, mode)) == "hunter22"


def test_a_password_below_a_private_directory_is_accepted(open_place: Path) -> None:
    private = open_place / "private"
    private.mkdir(mode=0o700)
    assert read_password(password_in(private, 0o644)) == "hunter22"


def test_a_pipe_is_read(open_place: Path) -> None:
    reading, writing = os.pipe()
    os.write(writing, b"hunter22\n")
    os.close(writing)
    assert read_password(Path(f"/dev/fd/{reading}")) == "hunter22"
    os.close(reading)


@pytest.mark.parametrize(
    ("mode", "read_only", "accepted"),
    [(0o444, True, True), (0o444, False, False), (0o440, False, True)],
)
def test_secrets_of_a_container_may_belong_to_root(
    open_place: Path, monkeypatch: pytest.MonkeyPatch, mode: int, read_only: bool, accepted: bool
) -> None:
    file = password_in(open_place, mode)
    stat = file.stat()

    class Mount:
        f_flag = os.ST_RDONLY if read_only else 0

    monkeypatch.setattr(os, "geteuid", lambda: 185)
    monkeypatch.setattr(os, "statvfs", lambda _: Mount)
    if stat.st_uid != 0:
        fields: Any = list(stat)
        fields[4] = 0
        monkeypatch.setattr(Path, "stat", lambda _: os.stat_result(fields))
    if accepted:
        assert read_password(file) == "hunter22"
    else:
        with pytest.raises(OptionError, match="others can read"):
            read_password(file)


# --- data directories ---------------------------------------------------------------------------------------


def test_a_data_directory_is_created_private(open_place: Path) -> None:
    data = open_place / "a" / "data"
    make_data_directory(data)
    assert data.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("mode", [0o755, 0o711, 0o770, 0o777])
def test_a_data_directory_open_to_others_is_an_error_that_names_the_fix(open_place: Path, mode: int) -> None:
    """Older versions created it so: one command makes it usable."""
    data = open_place / "data"
    data.mkdir()
    data.chmod(mode)
    with pytest.raises(OptionError, match=f"mode {mode:o}.*chmod 700 {data}"):
        Users(data)
    data.chmod(0o700)
    with Users(data) as users:
        assert users.all() == []


@pytest.mark.parametrize("mode", [0o700, 0o750])
def test_a_data_directory_may_be_readable_by_its_group(open_place: Path, mode: int) -> None:
    data = open_place / "data"
    data.mkdir()
    data.chmod(mode)
    make_data_directory(data)


def test_a_data_directory_below_a_private_directory_is_accepted(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    make_data_directory(data)
