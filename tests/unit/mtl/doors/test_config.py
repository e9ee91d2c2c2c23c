from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mtl.client.settings import Settings
from mtl.doors.config import DoorConfig, load, parse
from mtl.doors.peers import PeerConfig
from mtl.doors.pools import DoorQuota
from mtl.errors import OptionError


def test_doors_are_tables_of_the_broker_configuration(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(
        'data = "d"\n[doors.mc0]\nlisten = "tcp://127.0.0.1:1"\ncreate = ["a*"]\n[doors.reactive]\n'
    )
    assert load(path) == {"mc0": {"listen": "tcp://127.0.0.1:1", "create": ["a*"]}, "reactive": {}}
    assert parse("mc0", load(path)["mc0"]) == (
        DoorConfig(listen="tcp://127.0.0.1:1", create=("a*",)),
        Settings(),
    )
    path.write_text('[doors.mbws.peers.east]\nurl = "wss://east:1"\nsend = ["orders"]\n')
    config, _ = parse("mbws", load(path)["mbws"])
    assert config.peers == {"east": PeerConfig(url="wss://east:1", send=("orders",))}
    path.write_text(
        "[doors.mc0]\nmax-sessions = 40\n[doors.mc0.quotas]\nsessions = 30\ninbound-octets = 1000\n"
    )
    config, _ = parse("mc0", load(path)["mc0"])
    assert config.quotas == {DoorQuota.SESSIONS: 30, DoorQuota.INBOUND_OCTETS: 1000}
    path.write_text('data = "d"\n')
    assert load(path) == {}
    assert load(None) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[doors.mc0]\nlitsen = 1", "litsen"),
        ("[doors.mc0]\nmax-sessions = 0", "above 0"),
        (
            "[doors.mc0.quotas]\nsessions = 751",
            r"quotas\.sessions = 751 is not from 1 to 750: a quarter of the 1000",
        ),
        ("[doors.mc0.quotas]\nsubscriptions = 0", r"quotas\.subscriptions = 0 is not from 1"),
        ("[doors.mc0.quotas]\nsockets = 1", "sockets"),
        ('[doors.mbws]\nkey-file = "k"', "belong together"),
        ('[doors.mbws.peers.east]\nurl = "ws://a:1"\nsend = []', "length >= 1"),
        ('[doors.mbws.peers.east]\nurl = "http://a:1"\nsend = ["a"]', "is not ws://"),
        ('[doors.reactive.peers.east]\nurl = "ws://a:1"\nsend = ["a"]', "peers has no meaning"),
        ("[doors.mc0", "broker.toml"),
    ],
)
def test_invalid_members_are_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(text)
    with pytest.raises(OptionError, match=words):
        load(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="cannot read"):
        load(tmp_path / "none")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[doors.mc0]\nlitsen = 1", "litsen"),
        ("[doors.mc0]\nmax-sessions = 0", "above 0"),
        ("[doors.mc0]\nlisten = 5", "str"),
        ('[doors.mc0]\nlisten = "127.0.0.1:99999"', "99999"),
        ("[doors.mc1]", "no door 'mc1'"),
        ('[doors.mbws]\nkey-file = "k"', "belong together"),
    ],
)
def test_an_error_names_its_door(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "broker.toml"
    path.write_text("[doors.reactive]\n" + text)
    door = text[1 : text.index("]")]
    with pytest.raises(OptionError, match=rf"\[{door}\]: .*{words}"):
        load(path)


@pytest.mark.parametrize(
    ("door", "members", "option"),
    [
        ("mc0", {"certificate_file": "c", "key_file": "k"}, "certificate-file"),
        ("mc0", {"origins": ("https://example.org",)}, "origins"),
        ("mc0", {"page": True}, "page"),
        ("mc0", {"basic": True}, "basic"),
        ("reactive", {"tokens_file": "t"}, "tokens-file"),
        ("micromessage", {"basic": True}, "basic"),
        ("mbws", {"peer_keys": {"a": ("x",)}, "curve_key_file": "k"}, "curve-key-file"),
        ("micromessage", {"curve_key_file": "k"}, "curve-key-file"),
        ("micromessage", {"origins": ("*",)}, "origins"),
        ("reactive", {"origins": ("*",)}, "origins"),
        ("reactive", {"listen": "ws://127.0.0.1:0", "page": True}, "page"),
        ("mbws", {"curve_key_file": "k"}, "curve-key-file"),
    ],
)
def test_an_option_without_effect_at_a_door_is_an_error(
    door: str, members: dict[str, Any], option: str
) -> None:
    with pytest.raises(OptionError, match=f"{option} has no meaning for the door {door} at "):
        DoorConfig(**members).check(door, Settings())


@pytest.mark.parametrize(
    ("door", "members"),
    [
        ("mc0", {"curve_key_file": "k"}),
        ("micromessage", {"certificate_file": "c", "key_file": "k"}),
        ("reactive", {"listen": "wss://127.0.0.1:0", "certificate_file": "c", "key_file": "k"}),
        ("reactive", {"listen": "ws://127.0.0.1:0", "origins": ("*",)}),
        ("mbws", {"certificate_file": "c", "key_file": "k", "origins": ("*",), "page": True}),
    ],
)
def test_an_option_with_effect_at_a_door_is_accepted(door: str, members: dict[str, Any]) -> None:
    DoorConfig(**members).check(door, Settings())


def test_members_of_the_inner_connection_are_client_settings() -> None:
    table = {
        "curve-key-file": "door.key",
        "virtual-host": "other",
        "user": "door",
        "curve-server-key": "broker.pub",
        "curve-client-key-file": "client.key",
    }
    config, broker = parse("mc0", table, Settings("ipc://there", virtual_host="main", retry_deadline=2.5))
    assert config == DoorConfig(curve_key_file="door.key")
    assert broker == Settings(
        "ipc://there",
        virtual_host="other",
        retry_deadline=2.5,
        user="door",
        curve_server_key="broker.pub",
        curve_key_file="client.key",
    )


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"user": 5}, "user"),
        ({"user": "door"}, "there is no password"),
        ({"password": "secret"}, "unknown field"),
        ({"basic": True}, "a user of its own"),
        ({"tokens-file": "t"}, "--act-as"),
    ],
)
def test_a_door_without_usable_credentials_is_refused(table: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        parse("mbws", table)


def test_doors_create_no_resources_by_default() -> None:
    assert DoorConfig().create == ()


# --- beyond this machine ------------------------------------------------------------------------------------

OUTSIDE = {"mc0": "0.0.0.0:0", "micromessage": "[::]:0", "reactive": "*:0", "mbws": "192.0.2.1:0"}
TLS: dict[str, Any] = {"certificate_file": "c", "key_file": "k"}
CURVE: dict[str, Any] = {"curve_key_file": "k"}
DOOR = Settings(user="door", password_file="p")


def encrypting(door: str) -> dict[str, Any]:
    return CURVE if door == "mc0" else TLS


def authenticating(door: str) -> dict[str, Any]:
    return {"peer_keys": {"alice": ("x",)}} if door == "mc0" else {"client_authority_file": "a"}


@pytest.mark.parametrize(("door", "listen"), OUTSIDE.items())
def test_a_door_reachable_by_others_needs_encryption_and_authentication(door: str, listen: str) -> None:
    encrypted, authenticated = encrypting(door), authenticating(door)
    needed = next(iter(authenticated)).replace("_", "-")
    for given in ({}, encrypted):
        with pytest.raises(
            OptionError, match=rf"clients need no credentials; set .*{needed}.*insecure = true"
        ):
            DoorConfig(listen=listen, **given).check(door, Settings())
    DoorConfig(listen=listen, **encrypted, **authenticated).check(door, DOOR)
    DoorConfig(listen=listen, insecure=True).check(door, Settings())
    DoorConfig().check(door, Settings())


def test_a_websocket_door_has_several_ways_of_authentication() -> None:
    ways: list[dict[str, Any]] = [{"basic": True}, {"tokens_file": "t"}, {"client_authority_file": "a"}]
    for how in ways:
        DoorConfig(listen="0.0.0.0:0", **TLS, **how).check("mbws", DOOR)
        DoorConfig(listen="wss://0.0.0.0:0", **TLS, **how).check("reactive", DOOR)
    with pytest.raises(OptionError, match="nothing is encrypted; set certificate-file, listen on"):
        DoorConfig(listen="0.0.0.0:0", basic=True).check("mbws", DOOR)
    with pytest.raises(OptionError, match="basic or client-authority-file or tokens-file"):
        DoorConfig(listen="0.0.0.0:0", **TLS).check("mbws", Settings())


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"client_authority_file": "a"}, "needs certificate-file"),
        ({"peer_keys": {"alice": ("x",)}}, "need curve-key-file"),
    ],
)
def test_incomplete_combinations_of_members_are_refused(members: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        DoorConfig(**members)
