from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.doors.properties import from_texts, sequence_of, to_texts
from mtl.errors import Refused

NAMES = st.text(max_size=20).filter(lambda name: not name.startswith("mtl-"))


@given(st.dictionaries(NAMES, st.text(max_size=20)))
def test_text_properties_are_restored(headers: dict[str, str]) -> None:
    assert to_texts(from_texts(headers.items())) == headers


def test_values_of_other_types_are_converted_to_text() -> None:
    assert to_texts({"n": 7, "ok": True, "none": None}) == {"n": "7", "ok": "true", "none": ""}


@pytest.mark.parametrize(
    ("headers", "words"),
    [([("mtl-sequence", "1")], "broker's"), ([("k", "1"), ("k", "2")], "twice")],
)
def test_invalid_names_are_refused(headers: list[tuple[str, str]], words: str) -> None:
    with pytest.raises(Refused, match=words):
        from_texts(headers)


@pytest.mark.parametrize(
    ("digits", "sequence"),
    [
        ("1", 1),
        ("007", 7),
        (str(2**63 - 1), 2**63 - 1),
        *(
            (wrong, None)
            for wrong in ("", "0", "-1", "1.5", "soon", "\u0661", str(2**63), "0" * 19 + "1", "9" * 5_000)
        ),
    ],
)
def test_a_sequence_is_a_number_from_1_below_2_to_the_63(digits: str, sequence: int | None) -> None:
    assert sequence_of(digits) == sequence
