from __future__ import annotations

import asyncio

import pytest

from mtl.client.aio.loop import EventLoop
from mtl.errors import ClientFailed, MtlError
from mtl.net.endpoint import Link, LinkEvents
from tests.support.aio import in_loop, until
from tests.support.memory_network import MemoryLink, MemoryNetwork


@in_loop
async def test_posted_calls_and_timers_run_in_order_between_other_tasks() -> None:
    loop, ran = EventLoop(MemoryNetwork()), list[str]()

    def later() -> None:
        loop.after(0.02, lambda: ran.append("late"))
        loop.after(0.005, lambda: ran.append("early"))

    loop.post(lambda: ran.append("posted"))
    loop.post(lambda: loop.post(lambda: ran.append("posted later")))
    loop.post(later)
    assert ran == []
    await asyncio.sleep(0)
    assert ran == ["posted"]
    await until(lambda: len(ran) == 4)
    assert ran == ["posted", "posted later", "early", "late"]
    loop.end()


@in_loop
async def test_watchers_get_events_of_links_in_the_next_round() -> None:
    network = MemoryNetwork()
    loop, events = EventLoop(network), list[LinkEvents]()

    class Watcher:
        def ready(self, link: Link, what: LinkEvents) -> None:
            events.append(what)
            link.receive()

    link = MemoryLink(network, "data", "x")
    loop.post(lambda: loop.poll.add(link, Watcher()))
    loop.post(lambda: link.put(b"a", b"b"))
    loop.post(lambda: link.put(b"c", b"d"))
    await until(lambda: len(events) == 2)
    loop.end()


@in_loop
async def test_an_error_ends_the_loop_and_its_members() -> None:
    loop = EventLoop(MemoryNetwork())
    abandoned: list[MtlError] = []

    class Member:
        def abandoned(self, error: MtlError) -> None:
            abandoned.append(error)

    def fail() -> None:
        raise ZeroDivisionError

    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context["exception"]))
    loop.members.add(Member())
    loop.post(fail)
    await until(lambda: bool(abandoned))
    assert isinstance(errors[0], ZeroDivisionError)
    assert isinstance(abandoned[0], ClientFailed)
    with pytest.raises(ClientFailed, match="ZeroDivisionError"):
        loop.post(lambda: None)


def test_a_loop_may_be_ended_after_its_event_loop() -> None:
    async def make() -> EventLoop:
        loop = EventLoop()
        loop.after(60.0, lambda: None)
        loop.post(lambda: None)
        await asyncio.sleep(0)
        return loop

    asyncio.run(make()).end()
