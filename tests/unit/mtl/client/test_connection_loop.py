from __future__ import annotations

import pytest

from mtl.client.connection_loop import ConnectionLoop
from mtl.errors import ClientFailed, Closed, MtlError
from mtl.net.endpoint import Link, LinkEvents
from tests.support.memory_network import Bench, MemoryLink


class Member:
    def __init__(self) -> None:
        self.errors: list[MtlError] = []

    def abandoned(self, error: MtlError) -> None:
        self.errors.append(error)


class Stubborn:
    def abandoned(self, error: MtlError) -> None:
        raise RuntimeError("cannot end")


class Broken:
    def ready(self, link: Link, events: LinkEvents) -> None:
        raise TypeError("an odd frame")


def broken() -> None:
    raise TypeError("an odd frame")


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.parametrize("way", ["post", "after", "ready"])
def test_an_exception_ends_its_connection_and_no_other(
    bench: Bench, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    one, other = ConnectionLoop(bench.loop, "tcp://one:1"), ConnectionLoop(bench.loop, "tcp://other:1")
    member, safe, ran = Member(), Member(), list[int]()
    one.members |= {Stubborn(), member}
    other.members.add(safe)
    if way == "post":
        one.post(broken)
    elif way == "after":
        one.after(0.0, broken)
    else:
        link = MemoryLink(bench.network, "data", "x")
        one.poll.add(link, Broken())
        link.put(b"a", b"b")
    other.post(lambda: ran.append(1))
    bench.loop.step(0.0)
    assert [type(error) for error in member.errors] == [ClientFailed]
    assert "TypeError" in str(member.errors[0])
    assert "tcp://one:1" in str(member.errors[0])
    while "an odd frame" not in caplog.text:  # another thread logs
        pass
    with pytest.raises(ClientFailed, match="an odd frame"):
        one.post(lambda: None)
    assert (ran, safe.errors, other.running) == ([1], [], True)
    other.post(lambda: ran.append(2))
    bench.loop.step(0.0)
    assert ran == [1, 2]


def test_the_end_of_the_whole_loop_ends_the_parts(bench: Bench) -> None:
    loop, member = ConnectionLoop(bench.loop, "tcp://one:1"), Member()
    loop.members.add(member)
    bench.loop.end()
    assert [type(error) for error in member.errors] == [Closed]
    assert not loop.running
    with pytest.raises(Closed):
        loop.post(lambda: None)


def test_a_part_that_ended_is_forgotten(bench: Bench) -> None:
    loop = ConnectionLoop(bench.loop, "tcp://one:1")
    assert loop in bench.loop.members
    loop.end()
    assert loop not in bench.loop.members
    assert bench.loop.running
