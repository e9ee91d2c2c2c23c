"""RFC 5802, RFC 7677."""

from __future__ import annotations

import base64
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.errors import LocalError, Malformed
from mtl.protocol.sasl.mechanisms import encode
from mtl.protocol.sasl.scram import ScramClient, ScramServer, Unproven, Verifier, make_verifier, proves

SALT = b"s" * 16
VERIFIER = make_verifier("secret", SALT, 4096)


def server(verifier: Verifier = VERIFIER) -> ScramServer:
    return ScramServer(lambda _: verifier, "nonce")


def test_the_example_of_rfc_7677() -> None:
    """Section 3: user, pencil; the nonces and the salt are the RFC's."""
    verifier = make_verifier("pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    there = ScramServer(lambda _: verifier, "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
    assert there.first("n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert there.user == "user"
    final = there.final(
        "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert final == "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_without_scramp_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scramp", None)  # importing it fails
    with pytest.raises(LocalError, match=r"pip install 'pyspark-mtl\[scram\]'"):
        make_verifier("secret", SALT, 4096)


def test_a_verifier_checks_the_password_without_containing_it() -> None:
    assert proves("secret", VERIFIER)
    assert not proves("Secret", VERIFIER)
    assert proves("\0", VERIFIER) is False
    assert make_verifier("secret", b"t" * 16, 4096) != VERIFIER
    assert "key" not in repr(VERIFIER)


def test_too_few_iterations_and_forbidden_characters_are_refused() -> None:
    with pytest.raises(LocalError, match="cannot be used"):
        make_verifier("secret", SALT, 4095)
    with pytest.raises(LocalError, match="cannot be used"):
        make_verifier("\0", SALT, 4096)
    assert proves("a\u00adb", make_verifier("ab", SALT, 4096)), "a soft hyphen is mapped to nothing"


def test_both_sides_prove_the_password() -> None:
    there, here = server(), ScramClient("me", "secret")
    assert here.next(there.final(here.next(there.first(here.first())))) == ""
    assert here.finished
    with pytest.raises(Unproven):
        here.next("")


def test_a_wrong_password_is_unproven() -> None:
    there, here = server(), ScramClient("me", "wrong")
    with pytest.raises(Unproven):
        there.final(here.next(there.first(here.first())))


def test_a_server_without_the_verifier_is_unproven() -> None:
    there, here = server(), ScramClient("me", "secret")
    here.next(there.first(here.first()))
    with pytest.raises(Unproven):
        here.next("v=" + encode(b"x" * 32))
    assert not here.finished


def test_an_invalid_user_name_is_refused() -> None:
    with pytest.raises(LocalError):
        ScramClient("", "secret")


messages = st.text(max_size=100) | st.text("nrcpsiv=,ayAB019+/", max_size=60).map(
    lambda rest: f"n,,n=me,r={rest}"
)


@given(messages)
def test_any_first_message_is_answered_or_malformed(message: str) -> None:
    try:
        assert server().first(message).startswith("r=")
    except Malformed:
        pass


@given(messages | st.binary().map(lambda p: f"c=biws,r=abcnonce,p={encode(p)}"))
def test_any_final_message_is_unproven(message: str) -> None:
    there = server()
    there.first("n,,n=me,r=abc")
    with pytest.raises(Unproven):
        there.final(message)


@given(messages)
def test_any_answer_of_a_server_is_unproven(message: str) -> None:
    here = ScramClient("me", "secret")
    here.first()
    with pytest.raises(Unproven):
        here.next(message)
