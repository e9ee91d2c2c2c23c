from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.errors import Malformed
from mtl.protocol.sasl.mechanisms import decode, encode, scram_available, text_of


@pytest.mark.requirement("MTL-30", "MTL-32")
@given(st.binary())
def test_encoded_base64_is_decoded(octets: bytes) -> None:
    assert decode(encode(octets)) == octets


@given(st.text())
def test_any_text_is_base64_or_malformed(text: str) -> None:
    try:
        assert isinstance(decode(text), bytes)
    except Malformed:
        pass


@given(st.binary())
def test_any_octets_are_text_or_malformed(octets: bytes) -> None:
    try:
        assert text_of(octets).encode() == octets
    except Malformed:
        pass


def test_scramp_is_installed_with_the_tests() -> None:
    assert scram_available()
