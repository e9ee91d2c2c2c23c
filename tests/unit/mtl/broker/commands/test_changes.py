"""The changes since a state; test_polls.py has the answers to clients."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from mtl.broker.commands import changes
from mtl.broker.commands.changes import Changes


def resource(name: str, vhost: str = "v") -> Any:
    return SimpleNamespace(name=name, record=SimpleNamespace(vhost=vhost))


def test_the_last_change_of_each_resource_counts_in_the_order_of_the_changes() -> None:
    found = Changes("boot")
    before = found.state()
    for name in "abac":
        found.note(resource(name))
    found.note(resource("other", "w"))
    assert found.since("v", before) == {"b": 2, "a": 3, "c": 4}
    assert found.since("v", found.state(2)) == {"a": 3, "c": 4}
    assert found.since("v", found.state()) == {}
    assert found.since("none", before) == {}


def test_a_state_before_the_oldest_kept_change_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MAX_CHANGES", 2)
    found = Changes("boot")
    for name in "abc":
        found.note(resource(name))
    assert found.since("v", found.state(0)) is None
    assert found.since("v", found.state(1)) == {"b": 2, "c": 3}
