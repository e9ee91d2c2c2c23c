from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mtl.doors.identity import Basic, Bearer
from mtl.doors.peers import PeerConfig
from mtl.errors import OptionError
from tests.support.tls import Certificates

HERE: dict[str, Any] = {"url": "ws://127.0.0.1:5979", "send": ("orders",)}


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"url": "http://a:1"}, "is not ws://"),
        ({"url": "ws://a:1/?x=y"}, "is not ws://"),
        ({"user": "alice"}, "belong together"),
        ({"user": "alice", "password_file": "p", "token_file": "t"}, "not both"),
        ({"url": "ws://example.org:1", "token_file": "t"}, "use wss://"),
        ({"url": "ws://example.org:1", "user": "alice", "password_file": "p"}, "use wss://"),
    ],
)
def test_invalid_peer_configurations_are_errors(members: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        PeerConfig(**HERE | members)


def test_the_door_uses_the_configured_credentials(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("0123456789\n")
    assert PeerConfig(**HERE).credentials() is None
    password = PeerConfig(**HERE, user="alice", password_file=str(secret))
    assert password.credentials() == Basic("alice", "0123456789")
    assert PeerConfig(**HERE, token_file=str(secret)).credentials() == Bearer("0123456789")
    with pytest.raises(OptionError, match="cannot read the token"):
        PeerConfig(**HERE, token_file=str(tmp_path / "none")).credentials()


def test_a_peers_certificate_is_checked(tmp_path: Path) -> None:
    assert PeerConfig(**HERE).tls() is None
    files = Certificates(tmp_path)
    assert PeerConfig(**HERE, authority_file=str(files.authority)).tls() is not None
    with pytest.raises(OptionError, match="no authority"):
        PeerConfig(**HERE, authority_file=str(tmp_path / "none")).tls()
