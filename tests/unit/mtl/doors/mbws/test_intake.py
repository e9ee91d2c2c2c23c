"""The appends for a client's messages, at a broker that confirms on request."""

from __future__ import annotations

import asyncio

import pytest

from mtl.doors.mbws.codec import Message
from mtl.doors.mbws.intake import MbwsIntake
from tests.support.aio import in_loop
from tests.support.bridge import ConfirmingBridge


def intake() -> tuple[MbwsIntake, ConfirmingBridge]:
    bridge = ConfirmingBridge()
    return MbwsIntake(bridge.session), bridge


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
    messages, bridge = intake()
    await messages.send([Message(addresses, b"x")])
    assert bridge.appends == [(address, b"x") for address in appended]


@pytest.mark.requirement("MBWS-37", "MBWS-19")
@in_loop
async def test_a_message_to_several_addresses_is_confirmed_with_its_last_append() -> None:
    messages, bridge = intake()
    await messages.send([Message(("a", "", "b", "a"), b"x")])
    idle = asyncio.create_task(messages.wait_idle())
    await bridge.confirm()
    assert not idle.done()
    assert messages.confirmed == 0
    assert not messages.changed.is_set()
    await bridge.confirm()
    assert messages.confirmed == 1
    assert messages.changed.is_set()
    await idle


@pytest.mark.requirement("MBWS-37")
@pytest.mark.parametrize("addresses", [(), ("",), ("", "")])
@in_loop
async def test_a_message_with_only_empty_addresses_is_one_dead_letter(addresses: tuple[str, ...]) -> None:
    messages, bridge = intake()
    await messages.send([Message(addresses, b"x")])
    assert bridge.appends == [("mbws.dead", b"x")]
    await bridge.confirm()
    assert messages.confirmed == 1


@pytest.mark.requirement("MBWS-16", "MBWS-37")
@in_loop
async def test_messages_to_one_and_to_several_addresses_keep_their_order() -> None:
    messages, bridge = intake()
    await messages.send(
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
        assert messages.confirmed == confirmed
