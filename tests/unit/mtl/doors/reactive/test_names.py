from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.client.reader_part import Start
from mtl.doors.reactive.names import PUBLISH, Confirmations, ResourceContents, confirmations, contents, parse
from mtl.errors import Refused

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(
    lambda name: not name.startswith("$publish/")
)
STARTS: st.SearchStrategy[Start] = st.one_of(
    st.just("earliest"), st.just("latest"), st.integers(1, 2**63 - 1)
)


@given(NAMES, STARTS, st.booleans())
def test_encoded_names_are_parsed(resource: str, start: Start, enveloped: bool) -> None:
    assert parse(contents(resource, start, enveloped=enveloped)) == ResourceContents(
        resource, start, enveloped
    )
    name = confirmations(resource)
    assert parse(PUBLISH + name.back) == name


@pytest.mark.requirement("RS-27")
def test_handwritten_names_are_parsed() -> None:
    assert parse("orders") == ResourceContents("orders", "earliest", enveloped=False)
    assert parse("orders?from=latest") == ResourceContents("orders", "latest")
    assert parse("orders?envelope=seq&from=7") == ResourceContents("orders", 7, enveloped=True)
    assert parse("what%3F") == ResourceContents("what?")
    assert parse("$publish/a b") == Confirmations("a b", "a b")


@pytest.mark.parametrize(
    "publisher",
    [
        "",
        "?from=1",
        "$publish/",
        "a?from=yesterday",
        "a?from=-1",
        "a?from=" + "9" * 20,
        "a?from",
        "a?to=1",
        "a?from=1&from=2&from=3",
        "a?envelope=all",
        "%ff",
    ],
)
def test_invalid_names_are_refused(publisher: str) -> None:
    with pytest.raises(Refused, match="bad-publisher"):
        parse(publisher)


@given(st.text())
def test_any_text_is_a_name_or_refused(text: str) -> None:
    try:
        parse(text)
    except Refused:
        pass
