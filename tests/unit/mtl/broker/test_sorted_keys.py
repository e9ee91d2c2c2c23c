"""Pages of sorted keys."""

from __future__ import annotations

import pytest

from mtl.broker import sorted_keys
from mtl.broker.sorted_keys import SortedKeys

Key = tuple[str, str]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_keys, "MAX_PAGE", 3)


@pytest.fixture
def keys() -> SortedKeys[Key]:
    """Eight keys of two virtual hosts, the former of which is a prefix of the other's name."""
    return SortedKeys([*(("v", name) for name in "gaecb"), ("v2", "x"), ("u", "y"), ("v2", "a")])


def everything(keys: list[Key]) -> list[bool]:
    return [True] * len(keys)


def pages(keys: SortedKeys[Key], prefix: tuple[str, ...] = ("v",), scanned: int = 100) -> list[list[str]]:
    found, after = [], None
    while True:
        page = keys.page(prefix, after, lambda some: [name != "c" for _, name in some], scanned)
        found.append([name for _, name in page.keys])
        if page.last is None:
            return found
        after = page.last[1:]


def test_pages_have_all_wanted_keys_of_the_prefix_in_order(keys: SortedKeys[Key]) -> None:
    assert pages(keys) == [["a", "b", "e"], ["g"]]
    assert pages(keys, ("v2",)) == [["a", "x"]]
    assert pages(keys, ("w",)) == [[]]
    assert pages(keys, ("v", "b")) == [["b"]]


def test_a_page_ends_at_the_bound_of_compared_keys(keys: SortedKeys[Key]) -> None:
    assert pages(keys, scanned=2) == [["a", "b"], ["e"], ["g"]]
    assert pages(keys, scanned=1) == [["a"], ["b"], [], ["e"], ["g"]]


def test_a_full_page_at_the_end_is_the_last_one(keys: SortedKeys[Key]) -> None:
    keys.discard(("v", "g"))
    assert keys.page(("v",), ["a"], everything).keys == [("v", "b"), ("v", "c"), ("v", "e")]
    assert keys.page(("v",), ["a"], everything).last is None


def test_keys_are_added_and_removed_between_pages(keys: SortedKeys[Key]) -> None:
    first = keys.page(("v",), None, everything)
    assert first.last == ("v", "c")
    keys.discard(("v", "c"))
    keys.add(("v", "d"))
    keys.add(("v", "aa"))  # before the next page
    keys.discard(("v", "missing"))
    assert first.last is not None
    assert [name for _, name in keys.page(("v",), first.last[1:], everything).keys] == ["d", "e", "g"]


def test_keys_with_other_beginnings_are_not_judged(keys: SortedKeys[Key]) -> None:
    for name in ("ca", "cb", "cc", "ce"):
        keys.add(("v", name))
    judged: list[str] = []

    def record(some: list[Key]) -> list[bool]:
        judged.extend(name for _, name in some)
        return everything(some)

    first = keys.page(("v",), None, record, beginnings=("b", "c", "zz"))
    assert (judged, first.last) == (["b", "c", "ca", "cb", "cc", "ce"], ("v", "ca"))
    judged.clear()
    assert keys.page(("v",), ["ca"], record, 2, ("b", "c", "zz")).last == ("v", "cc")
    assert judged == ["cb", "cc"]
    assert keys.page(("v",), ["cc"], record, beginnings=("b", "c")) == ([("v", "ce")], None)
    assert keys.page(("v",), None, record, beginnings=()) == ([], None)


def test_a_page_ends_after_the_last_key_that_was_judged(keys: SortedKeys[Key]) -> None:
    page = keys.page(("v",), None, lambda some: [False, True])
    assert page == ([("v", "b")], ("v", "b"))
    assert keys.page(("v",), ["c"], lambda some: [True, False]) == ([("v", "e")], None)


def test_keys_between_two_places(keys: SortedKeys[Key]) -> None:
    assert keys.between(("v", "b"), ("v", "e")) == [("v", "b"), ("v", "c")]
    assert keys.between(("v",), ("v", "b")) == [("v", "a")]


def test_a_place_before_the_prefix_is_its_beginning(keys: SortedKeys[Key]) -> None:
    assert keys.page(("v2",), ["", "anything"], everything).keys == [("v2", "a"), ("v2", "x")]
