"""RFC 4616."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.errors import Malformed
from mtl.protocol.sasl.names import user_name
from mtl.protocol.sasl.plain import PlainMessage, decode, encode

words = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), min_size=1)


@given(words, words, words | st.just(""))
def test_an_encoded_message_is_decoded(user: str, password: str, acting_as: str) -> None:
    """The password is as it was sent, the names are in their normal form."""
    try:
        expected = PlainMessage(user_name(user), password, user_name(acting_as) if acting_as else "")
    except Malformed:
        with pytest.raises(Malformed):
            decode(encode(PlainMessage(user, password, acting_as)))
    else:
        assert decode(encode(PlainMessage(user, password, acting_as))) == expected


def test_a_name_that_looks_alike_is_the_same_user() -> None:
    assert decode("\0\ufb01nance\0secret".encode()).user == "finance"


@given(st.binary())
def test_any_octets_are_a_message_or_malformed(octets: bytes) -> None:
    try:
        message = decode(octets)
        assert decode(encode(message)) == message
    except Malformed:
        pass


@pytest.mark.parametrize(
    "octets", [b"", b"me\0secret", b"\0me\0", b"\0\0secret", b"\0me\0sec\0ret", b"\xff\0a\0b"]
)
def test_octets_that_are_not_a_message_are_malformed(octets: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        decode(octets)
    assert "secret" not in str(caught.value)


def test_a_password_is_hidden_in_repr() -> None:
    assert "secret" not in repr(PlainMessage("me", "secret"))
