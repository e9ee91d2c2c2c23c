from __future__ import annotations

import inspect
import traceback
from pathlib import Path
from typing import Any

import pytest

from mtl.client.connection import connect
from mtl.client.settings import Settings
from mtl.errors import OptionError

KEY: dict[str, Any] = {"curve_server_key": "s" * 40}
KEYS: dict[str, Any] = {**KEY, "curve_key_file": "my.key"}


def test_settings_are_the_arguments_of_connect() -> None:
    made, called = (inspect.signature(function).parameters for function in (Settings, connect))
    assert [(parameter.name, parameter.default) for parameter in made.values()] == [
        (parameter.name, parameter.default) for parameter in called.values()
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"endpoint": "localhost:5975"},
        {"request_timeout": 0.0},
        {"retry_deadline": -1.0},
        {"heartbeat": -1.0},
        {"user": "me"},
        {"user": "me", **KEY},
        {"curve_key_file": "my.key"},
        {"endpoint": "inproc://x"},
        {"endpoint": "tcp://no port"},
        {"password": "secret"},
        {"password_file": "secret"},
        {"user": "me", "password": "secret", "password_env": "SECRET"},
        {"user": "me", "password": "secret", "sasl_mechanism": "KERBEROS"},
        {"sasl_mechanism": "PLAIN"},
        {"sasl_mechanism": "EXTERNAL"},
    ],
)
def test_invalid_settings_are_option_errors(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError):
        Settings(**wrong)  # type: ignore[arg-type]


def test_secrets_are_hidden_in_repr() -> None:
    assert "secret" not in repr(Settings(user="me", password="secret"))


def test_a_password_is_read_from_its_source_at_each_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "password"
    there = Settings(user="me", password_file=str(file))
    with pytest.raises(OptionError, match="cannot read the password"):
        there.credentials()
    for content, password in (("first\n", "first"), ("second\r\nmore", "second")):
        file.write_text(content)
        assert there.credentials().password == password
    file.write_text("\n")
    with pytest.raises(OptionError, match="empty"):
        there.credentials()
    file.write_bytes(b"\xff")
    with pytest.raises(OptionError, match="UTF-8"):
        there.credentials()
    named = Settings(user="me", password_env="MTL_SECRET")
    monkeypatch.setenv("MTL_SECRET", "")
    with pytest.raises(OptionError, match="MTL_SECRET is empty"):
        named.credentials()
    monkeypatch.setenv("MTL_SECRET", "third")
    assert named.credentials().password == "third"


@pytest.mark.parametrize("option", ["password_env", "password_file"])
@pytest.mark.parametrize("password", ["hunter2hunter2", "hunter/2hunter2", "x" * 5000, "x" * 5000 + "/y"])
def test_a_password_given_as_the_name_of_its_source_is_hidden(option: str, password: str) -> None:
    named = Settings(user="me", **{option: password})  # type: ignore[arg-type]
    with pytest.raises(OptionError) as caught:
        named.credentials()
    printed = "".join(traceback.format_exception(caught.value))
    assert password not in printed
    assert "password" in str(caught.value)


def test_usable_credentials_depend_on_the_connection() -> None:
    assert Settings("tcp://broker:1", user="me", password="secret").credentials().clear
    assert not Settings("ipc:///tmp/x", user="me", password="secret").credentials().clear
    keyed = Settings("tcp://broker:1", user="me", **KEYS).credentials()
    assert (keyed.clear, keyed.key, keyed.usable()) == (False, True, ["EXTERNAL"])
    assert not Settings(**KEY).credentials().key
