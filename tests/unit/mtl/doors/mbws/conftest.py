from __future__ import annotations

import pytest

from tests.support.scripted_mbws_door import ScriptedDoor


@pytest.fixture
def door(monkeypatch: pytest.MonkeyPatch) -> ScriptedDoor:
    """The door of every client in the test."""
    return ScriptedDoor(monkeypatch)
