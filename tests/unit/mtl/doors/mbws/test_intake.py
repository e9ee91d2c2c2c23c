"""The appends for a client's messages, at a broker that confirms on request."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast

import pytest

from mtl.doors.bridge import Bridge
from mtl.doors.mbws.codec import Message
from mtl.doors.mbws.intake import MbwsIntake
from mtl.doors.runs import ContentRun
from mtl.wire.fields import Buffer, Value
from tests.support.aio import in_loop


class ConfirmingBridge:
    """`appends` are the addresses and bodies so far; `unconfirmed` are their results."""

    def __init__(self) -> None:
        self.appends: list[tuple[str, bytes]] = []
        self.unconfirmed: list[asyncio.Future[None]] = []

    async def publish(
        self,
        resource: str,
        body: Buffer,
        properties: Mapping[str, Value] | None = None,  # noqa: ARG002 the interface's
    ) -> asyncio.Future[None]:
        return self._append(resource, [bytes(body)])

    async def publish_run(self, run: ContentRun) -> asyncio.Future[None]:
        return self._append(run.resource, run.bodies)

    def _append(self, resource: str, bodies: list[bytes]) -> asyncio.Future[None]:
        self.appends += [(resource, body) for body in bodies]
        self.unconfirmed.append(asyncio.get_running_loop().create_future())
        return self.unconfirmed[-1]

    async def confirm(self) -> None:
        """Confirm the oldest append."""
        self.unconfirmed.pop(0).set_result(None)
        await asyncio.sleep(0)


def intake() -> tuple[MbwsIntake, ConfirmingBridge]:
    bridge = ConfirmingBridge()
    return MbwsIntake(cast("Bridge", bridge)), bridge


@pytest.mark.requirement("MBWS-37")
@pytest.mark.parametrize(
    ("addresses", "appended"),
    [
        (("a",), ["a"]),
        (("a", "b"), ["a", "b"]),
        (("b", "a", "b", "a"), ["b", "a"]),
        (("", "a"), ["a"]),
        (("a", "", "b", ""), ["a", "b"]),
    ],
)
@in_loop
async def test_a_message_is_appended_once_to_each_of_its_nonempty_addresses(
    addresses: tuple[str, ...], appended: list[str]
) -> None:
    one, bridge = intake()
    await one.send([Message(addresses, b"x")])
    assert bridge.appends == [(address, b"x") for address in appended]


@pytest.mark.requirement("MBWS-37", "MBWS-19")
@in_loop
async def test_a_message_to_several_addresses_is_confirmed_with_its_last_append() -> None:
    one, bridge = intake()
    await one.send([Message(("a", "", "b", "a"), b"x")])
    await bridge.confirm()
    assert one.confirmed == 0
    assert not one.changed.is_set()
    await bridge.confirm()
    assert one.confirmed == 1
    assert one.changed.is_set()
    await one.wait_idle()


@pytest.mark.requirement("MBWS-37")
@pytest.mark.parametrize("addresses", [(), ("",), ("", "")])
@in_loop
async def test_a_message_with_only_empty_addresses_is_one_dead_letter(addresses: tuple[str, ...]) -> None:
    one, bridge = intake()
    await one.send([Message(addresses, b"x")])
    assert bridge.appends == [("mbws.dead", b"x")]
    await bridge.confirm()
    assert one.confirmed == 1


@pytest.mark.requirement("MBWS-16", "MBWS-37")
@in_loop
async def test_messages_to_one_and_to_several_addresses_keep_their_order() -> None:
    one, bridge = intake()
    await one.send(
        [
            Message(("a",), b"1"),
            Message(("a",), b"2"),
            Message(("a", "b"), b"3"),
            Message(("b",), b"4"),
            Message(("a",), b"5"),
        ]
    )
    assert bridge.appends == [("a", b"1"), ("a", b"2"), ("a", b"3"), ("b", b"3"), ("b", b"4"), ("a", b"5")]
    for confirmed in (2, 2, 3, 4, 5):
        await bridge.confirm()
        assert one.confirmed == confirmed
