from __future__ import annotations

import asyncio
from http import HTTPStatus

import pytest

from mtl.doors.authentication import AccessDenied, PeerAuthenticator
from mtl.doors.config import DoorConfig
from mtl.doors.limits import DOOR_LOGINS, DOOR_LOGINS_ADDRESS
from mtl.doors.websocket_client import basic, bearer
from mtl.errors import MtlError, Refused, Unreachable
from mtl.wire.control import NOT_AUTHORIZED, OVERLOADED
from tests.support.aio import in_loop

CONFIG = DoorConfig(basic=True)
WRONG = Refused(401, NOT_AUTHORIZED, "the broker did not accept the password of user 'alice'")


class Checking:
    """A broker with a prepared answer, and the log-ins that it was asked to check."""

    def __init__(self, answer: MtlError | None = None) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, str]] = []

    async def __call__(self, user: str, password: str, address: str) -> None:
        self.asked.append((user, password, address))
        if self.answer is not None:
            raise self.answer


async def turned(authenticator: PeerAuthenticator, header: str | None, address: str = "here") -> AccessDenied:
    with pytest.raises(AccessDenied) as turned:
        await authenticator.authenticate(header, address, None)
    return turned.value


@in_loop
async def test_without_authentication_a_peer_needs_no_credentials() -> None:
    assert (
        await PeerAuthenticator(DoorConfig(), Checking(WRONG)).authenticate(basic("alice", "x"), "here", None)
        is None
    )


@in_loop
async def test_a_password_is_checked_by_the_broker() -> None:
    checking = Checking()
    assert (
        await PeerAuthenticator(CONFIG, checking).authenticate(basic("alice", "secret"), "here", None)
        == "alice"
    )
    assert checking.asked == [("alice", "secret", "here")]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (WRONG, HTTPStatus.UNAUTHORIZED),
        (Refused(503, OVERLOADED, "tcp://10.0.0.7:5975"), HTTPStatus.SERVICE_UNAVAILABLE),
        (Unreachable("tcp://10.0.0.7:5975", 5.0, "Connection.Open"), HTTPStatus.SERVICE_UNAVAILABLE),
    ],
)
@in_loop
async def test_failures_of_the_check_become_http_statuses(answer: MtlError, status: HTTPStatus) -> None:
    outcome = await turned(PeerAuthenticator(CONFIG, Checking(answer)), basic("alice", "secret"))
    assert outcome.status is status
    assert "10.0.0.7" not in outcome.words


@in_loop
async def test_tokens_and_passwords_are_not_interchangeable() -> None:
    checking = Checking()
    authenticator = PeerAuthenticator(CONFIG, checking)
    for header in (bearer("secret"), "Basic x", None):
        outcome = await turned(authenticator, header)
        assert (outcome.status, outcome.challenges) == (401, ('Basic realm="mtl", charset="UTF-8"',))
    assert checking.asked == []


@in_loop
async def test_wrong_passwords_from_other_addresses_lock_nobody_out() -> None:
    checking = Checking(WRONG)
    authenticator = PeerAuthenticator(CONFIG, checking)
    for number in range(300):
        outcome = await turned(authenticator, basic("alice", "wrong"), f"address {number % 5}")
        assert outcome.status is HTTPStatus.UNAUTHORIZED
    checking.answer = None
    assert await authenticator.authenticate(basic("alice", "right"), "address 1", None) == "alice"


@in_loop
async def test_an_address_leaves_places_for_others() -> None:
    """Checks of one address that the broker does not answer do not delay a peer from another address."""
    hold, begun = asyncio.Event(), []

    async def check(_user: str, password: str, _address: str) -> None:
        begun.append(password)
        if password == "slow":
            await hold.wait()

    authenticator = PeerAuthenticator(CONFIG, check)
    async with asyncio.TaskGroup() as tasks:
        for _ in range(3 * DOOR_LOGINS):
            tasks.create_task(authenticator.authenticate(basic("mallory", "slow"), "there", None))
        await asyncio.sleep(0)
        assert await authenticator.authenticate(basic("alice", "right"), "here", None) == "alice"
        assert begun.count("slow") == DOOR_LOGINS_ADDRESS
        hold.set()
    assert begun.count("slow") == 3 * DOOR_LOGINS
    assert authenticator._checks.held == 0
