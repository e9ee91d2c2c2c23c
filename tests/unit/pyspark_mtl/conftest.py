from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.support.fake_client import FakeClient, FakeLog, install


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> FakeClient:
    """The connection of this process, to a broker in memory."""
    return install(FakeClient(), monkeypatch)


@pytest.fixture
def logs(client: FakeClient) -> Iterator[None]:
    """Resources `a` and `b` with 50 and 9 contents; the SIGTERM handler of a stream is removed at the end."""
    client.logs.update(a=FakeLog([b""] * 50), b=FakeLog([b""] * 9))
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)
