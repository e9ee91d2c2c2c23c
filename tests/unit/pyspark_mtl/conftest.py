from __future__ import annotations

import pytest

from tests.support.fake_client import FakeClient, install


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    """The connection of this process, to a broker in memory."""
    return install(FakeClient(), monkeypatch)
