from __future__ import annotations

from mtl.broker.events import Event


def test_reactions_run_in_order_with_the_arguments_of_the_event() -> None:
    calls: list[tuple[str, int]] = []
    event: Event[[int]] = Event()
    event(1)  # nothing follows yet
    event.leads_to(lambda n: calls.append(("first", n)), lambda n: calls.append(("second", n)))
    event(2)
    assert calls == [("first", 2), ("second", 2)]


def test_new_reactions_replace_the_former_ones() -> None:
    calls: list[str] = []
    event: Event[[]] = Event()
    event.leads_to(lambda: calls.append("former"))
    event.leads_to(lambda: calls.append("present"))
    event()
    assert calls == ["present"]
