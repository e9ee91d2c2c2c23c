from __future__ import annotations

import ssl
from base64 import b64encode
from pathlib import Path
from typing import Any, cast

import pytest

from mtl.doors.identity import Basic, Bearer, Tokens, parse, user_of_certificate, users_of
from mtl.errors import OptionError
from mtl.net.curve import make_keys, write_keys


def encoded(text: str) -> str:
    return b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (f"Basic {encoded('alice:se:cret')}", Basic("alice", "se:cret")),
        (f"basic  {encoded('größer:✓')}", Basic("größer", "✓")),
        (f"Basic {encoded(chr(0xFB01) + 'nance:secret')}", Basic("finance", "secret")),
        (f"Basic {encoded('al' + chr(0x202E) + 'ice:secret')}", None),
        ("Bearer abc", Bearer("abc")),
        ("BEARER abc ", Bearer("abc")),
        ("", None),
        ("Basic", None),
        ("Basic ???", None),
        (f"Basic {b64encode(bytes([255])).decode()}", None),
        (f"Basic {encoded('alice')}", None),
        (f"Basic {encoded(':secret')}", None),
        ("Digest abc", None),
    ],
)
def test_an_authorization_header_is_parsed(header: str, expected: Basic | Bearer | None) -> None:
    assert parse(header) == expected


class Certified:
    def __init__(self, **certificate: Any) -> None:
        self._certificate = certificate

    def getpeercert(self) -> dict[str, Any]:
        return self._certificate


def named(*names: str) -> Certified:
    return Certified(subject=((("organizationName", "x"),), *((("commonName", name),) for name in names)))


@pytest.mark.parametrize(
    ("tls", "user"),
    [
        (None, None),
        (Certified(), None),
        (Certified(subject=()), None),
        (named(), None),
        (named(""), None),
        (named("alice"), "alice"),
        (named("\ufb01nance"), "finance"),
        (named("a\u202eb"), None),
        (named("alice", "bob"), None),
    ],
)
def test_a_certificate_identifies_the_user_of_its_single_common_name(
    tls: Certified | None, user: str | None
) -> None:
    assert user_of_certificate(cast("ssl.SSLObject | None", tls)) == user


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens"
    path.touch(0o600)
    return path


def test_a_token_identifies_its_user(file: Path) -> None:
    file.write_text("# ours\n\nalice 0123456789abcdef\nbob smith fedcba9876543210\n")
    tokens = Tokens(file)
    assert tokens.user("0123456789abcdef") == "alice"
    assert tokens.user("fedcba9876543210") == "bob smith"
    for wrong in ("", "0123456789abcde", "0123456789abcdef0", "größer"):
        assert tokens.user(wrong) is None


def test_readable_or_guessable_tokens_are_errors(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mtl.net.private._is_shut", lambda _: False)
    file.write_text("alice 0123456789abcdef\nbob short\n")
    with pytest.raises(OptionError, match=r"line 2 of .* 16 characters") as wrong:
        Tokens(file)
    assert "short" not in str(wrong.value)
    file.chmod(0o644)
    with pytest.raises(OptionError, match="chmod 600"):
        Tokens(file)
    with pytest.raises(OptionError, match="cannot read the tokens"):
        Tokens(file.with_name("none"))


def test_a_curve_key_belongs_to_one_user(tmp_path: Path) -> None:
    key = make_keys()[0].decode()
    _, public = write_keys(tmp_path / "alice")
    users = users_of({"alice": (str(public),), "bob": (key, key)})
    assert sorted(users.values()) == ["alice", "bob"]
    assert users[key] == "bob"
    with pytest.raises(OptionError, match="'bob' and 'eve' have the same key"):
        users_of({"bob": (key,), "eve": (key,)})
