"""The control sessions of a connection: against a server that answers nothing until enough requests have come, and in
memory.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import mtl
from mtl.client.control import Call, Outcome
from mtl.client.opening import Opening
from mtl.client.sessions import _PARALLEL, ClientSessions
from mtl.client.writer_part import WriterPart
from mtl.errors import Refused
from mtl.wire import control
from tests.support.memory_network import Bench
from tests.support.minimal_server import MinimalServer
from tests.unit.mtl.client.test_writer_part import GRANTED, OPTIONS


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


class Interrupted:
    """The sessions of a connection in memory, whose main session is ready."""

    def __init__(self) -> None:
        self.bench = Bench()
        self.sessions = ClientSessions(self.bench.loop, self.bench.settings, None)
        self.outcomes: list[Outcome] = []
        self.ask(None)
        self.main = self.bench.ready()

    def ask(self, request: control.Request | None) -> Call:
        call = Call(request, self.outcomes.append)
        self.bench.loop.post(self.sessions.ask(call))
        return call

    def open_writer(self) -> Opening[WriterPart]:
        opening = self.sessions.open(
            lambda loop, channel: WriterPart(loop, channel, OPTIONS), None, self.outcomes.append
        )
        self.bench.loop.post(opening.begin)
        self.bench.run()
        return opening

    def interrupted_deletion(self) -> Call:
        """The deletion is with the broker when Ctrl-C comes."""
        self.main.up()
        call = self.ask(control.ResourceDelete(resource="a"))
        self.bench.run()
        assert isinstance(self.main.asked(), control.ResourceDelete)
        self.sessions.cancel(call)
        return call


def test_a_request_after_an_interrupted_one_is_sent_after_its_answer() -> None:
    at = Interrupted()
    at.interrupted_deletion()
    at.ask(control.ResourceCreate(resource="a"))
    at.bench.run()
    assert at.bench.count("request") == 1, "another session could reach the broker first"
    at.main.answer(control.Ok())
    at.bench.run()
    assert isinstance(at.main.asked(), control.ResourceCreate)


def test_a_request_that_is_interrupted_in_its_turn_is_not_sent() -> None:
    at = Interrupted()
    at.interrupted_deletion()
    at.sessions.cancel(at.ask(control.ResourceCreate(resource="a")))
    at.bench.run()
    at.main.answer(control.Ok())
    at.bench.run()
    assert not at.main.sent
    assert at.bench.count("request") == 1


def test_an_opening_after_an_interrupted_one_of_the_same_writer_is_the_newer_one() -> None:
    at = Interrupted()
    first = at.open_writer()
    link = at.bench.ready()
    assert isinstance(link.asked(), control.ConnectionWriter)
    first.cancel()
    at.open_writer()
    assert at.bench.last("request") is link, "another session could reach the broker first"
    link.answer(GRANTED)
    at.bench.run()
    assert isinstance(at.bench.ready().asked(), control.ConnectionWriter)


def test_requests_do_not_wait_for_an_interrupted_long_poll() -> None:
    """It changes nothing, and the broker may hold it for a minute."""
    at = Interrupted()
    at.main.up()
    poll = Call(control.ResourceDescribe(since="s", wait=60), at.outcomes.append, patience=60.0)
    at.bench.loop.post(at.sessions.ask(poll))
    assert isinstance(at.bench.ready().asked(), control.ResourceDescribe)
    at.sessions.cancel(poll)
    at.ask(control.ResourceCreate(resource="a"))
    at.bench.run()
    assert isinstance(at.main.asked(), control.ResourceCreate)


def test_requests_wait_for_an_interrupted_one_for_a_limited_time() -> None:
    at = Interrupted()
    first = at.open_writer()
    assert isinstance(at.bench.ready().asked(), control.ConnectionWriter)
    first.cancel()
    at.ask(control.ResourceCreate(resource="a"))
    at.bench.run(at.bench.settings.request_timeout)
    assert isinstance(at.main.asked(), control.ResourceCreate)
