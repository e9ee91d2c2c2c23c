from __future__ import annotations

from mtl.broker.events import Event


def test_reactions_follow_in_their_order_with_what_happened() -> None:
    heard: list[tuple[str, int]] = []
    event: Event[[int]] = Event()
    event(1)  # nothing follows yet
    event.leads_to(lambda n: heard.append(("first", n)), lambda n: heard.append(("second", n)))
    event(2)
    assert heard == [("first", 2), ("second", 2)]


def test_other_reactions_replace_those_of_before() -> None:
    heard: list[str] = []
    event: Event[[]] = Event()
    event.leads_to(lambda: heard.append("former"))
    event.leads_to(lambda: heard.append("present"))
    event()
    assert heard == ["present"]
