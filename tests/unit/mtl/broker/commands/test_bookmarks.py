from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.broker.commands.bookmarks import Bookmarks
from mtl.errors import Refused
from mtl.limits import MAX_SHORT_STRING
from mtl.wire import control

names = st.text(st.characters(exclude_categories=["Cs"]), max_size=MAX_SHORT_STRING)


@given(st.lists(names, max_size=3))
def test_a_bookmark_is_opened_by_its_broker_only(place: list[str]) -> None:
    """Also after a restart: the secret is that of the data directory."""
    bookmark = Bookmarks(b"secret", os.urandom).seal(place)
    assert Bookmarks(b"secret", os.urandom).open(bookmark) == place
    with pytest.raises(Refused) as caught:
        Bookmarks(b"another", os.urandom).open(bookmark)
    assert (caught.value.status, caught.value.reason) == (400, control.BAD_ARGUMENTS)


def test_a_bookmark_fits_a_request() -> None:
    longest = ["\N{SNOWMAN}" * (MAX_SHORT_STRING // 3)] * 3
    control.ResourceList(continue_=Bookmarks(b"secret", os.urandom).seal(longest))
    _, body = control.encode_request(
        control.ResourceList(continue_=Bookmarks(b"secret", os.urandom).seal(longest))
    )
    control.decode_request([b"Resource.List", body])


def test_a_bookmark_tells_neither_the_name_nor_its_length() -> None:
    bookmarks = Bookmarks(b"secret", os.urandom)
    short, long = bookmarks.seal(["a"]), bookmarks.seal(["the-secret-project"])
    assert len("".join(short)) == len("".join(long))
    assert bookmarks.seal(["a"]) != short


@given(st.lists(st.text(max_size=255), max_size=8))
def test_any_other_texts_are_refused(texts: list[str]) -> None:
    with pytest.raises(Refused):
        Bookmarks(b"secret", os.urandom).open(texts)


@given(st.integers(0, 400), st.integers(1, 255))
def test_a_changed_bookmark_is_refused(at: int, change: int) -> None:
    [text, *more] = Bookmarks(b"secret", os.urandom).seal(["orders"])
    at %= len(text)
    changed = text[:at] + chr(ord(text[at]) ^ change) + text[at + 1 :]
    with pytest.raises(Refused):
        Bookmarks(b"secret", os.urandom).open([changed, *more])
