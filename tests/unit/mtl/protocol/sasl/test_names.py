"""RFC 4013."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.errors import Malformed
from mtl.protocol.sasl.names import user_name


@pytest.mark.parametrize(
    ("given", "normal"),
    [
        ("alice", "alice"),
        ("I\u00adX", "IX"),  # the examples of RFC 4013, section 3
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("\ufb01nance", "finance"),
        ("Jose\u0301", "Jos\u00e9"),
        ("a\u00a0b", "a b"),
        ("al\u200bice", "alice"),
        ("\u05d0\u05d1", "\u05d0\u05d1"),
    ],
)
def test_names_that_look_alike_have_one_form(given: str, normal: str) -> None:
    assert user_name(given) == normal


@pytest.mark.parametrize(
    "name",
    [
        "",
        "\u00ad",
        "a\nb",
        "\u0007",
        "\u0627\u0031",
        "\ue000",
        "\ud800",
        "\u202eecila",
        "a\U000e0041",
        "a\u0221",
        "a\u05d0",
        "a\u3164",
    ],
)
def test_forbidden_names_are_malformed(name: str) -> None:
    with pytest.raises(Malformed, match="user name"):
        user_name(name)


@given(st.text())
def test_a_normal_form_is_its_own(text: str) -> None:
    try:
        name = user_name(text)
    except Malformed:
        return
    assert user_name(name) == name
