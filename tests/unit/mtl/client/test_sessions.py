"""The control sessions of a connection, against a server that answers nothing until enough requests have come."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import mtl
from mtl.client.sessions import _PARALLEL
from mtl.errors import Refused
from tests.support.minimal_server import MinimalServer


class HoldingServer(MinimalServer):
    """Holds its first refusals of Resource.Describe until `together` sessions wait for one."""

    def __init__(self, together: int) -> None:
        super().__init__(profiles=("log",))
        self.together = together
        self.most = 0
        self._held: dict[bytes, tuple[list[bytes], str, list[bytes]]] = {}

    def reply(self, envelope: list[bytes], name: str, frames: list[bytes]) -> None:
        if name != "resource.describe":
            super().reply(envelope, name, frames)
            return
        self._held[envelope[0]] = envelope, name, frames  # a session has one request at a time
        self.most = max(self.most, len(self._held))
        if len(self._held) >= self.together:
            held, self._held, self.together = self._held, {}, 1
            for each in held.values():
                super().reply(*each)


@pytest.mark.parametrize("threads", [1, _PARALLEL, 3 * _PARALLEL])
def test_requests_of_several_threads_are_with_the_server_at_the_same_time(threads: int) -> None:
    together = min(threads, _PARALLEL)
    with HoldingServer(together) as server, mtl.connect(server.endpoint) as connection:

        def describe(_: int) -> int:
            with pytest.raises(Refused) as refused:
                connection.describe()
            return refused.value.status

        with ThreadPoolExecutor(threads) as pool:
            assert list(pool.map(describe, range(threads))) == [501] * threads
        assert server.most == together
