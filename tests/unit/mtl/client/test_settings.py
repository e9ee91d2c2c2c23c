from __future__ import annotations

import pydoc
import traceback
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import mtl
from mtl import aio
from mtl.client.settings import Settings
from mtl.errors import OptionError

KEY: dict[str, Any] = {"curve_server_key": "s" * 40}
KEYS: dict[str, Any] = {**KEY, "curve_key_file": "my.key"}


@pytest.mark.parametrize("connect", [mtl.connect, aio.connect])
def test_the_help_on_connect_has_each_setting_with_its_default_and_meaning(connect: Any) -> None:
    helped = pydoc.plain(pydoc.render_doc(connect))
    assert helped.splitlines()[2].startswith(
        "connect(endpoint: 'str' = 'tcp://127.0.0.1:5975', *, virtual_host:"
    )
    for member in fields(Settings):
        assert f"{member.name}: " in helped
        assert f"`{member.name}`" in connect.__doc__, "virtual_host and profile, too"
    with pytest.raises(TypeError, match="connect: heartbeat has to be float or None"):
        connect(heartbeat="1")


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
