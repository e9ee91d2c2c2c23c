from __future__ import annotations

from mtl.doors.remembered import Remembered


def test_the_oldest_thing_is_forgotten_for_the_newest() -> None:
    things: Remembered[int] = Remembered(2)
    assert [things.add(str(number), str(number), number) for number in range(3)] == [[], [], [0]]
    assert (list(things), things.get("0"), things.get("2")) == (["1", "2"], None, 2)
    assert (things.pop("1"), things.pop("1"), len(things)) == (1, None, 1)


def test_an_owner_above_its_share_displaces_its_own_oldest_thing() -> None:
    things: Remembered[str] = Remembered(8)
    for key in ("a1", "b1", "a2"):
        assert things.add(key, key[0], key) == []
    assert things.add("a3", "a", "a3") == ["a1"]
    assert list(things) == ["b1", "a2", "a3"]
    assert things.add("a2", "a", "again") == []
    assert list(things) == ["b1", "a3", "a2"]
