from __future__ import annotations

from http import HTTPStatus

import pytest

from mtl.broker.limits import FAILED_LOGINS_ADDRESS, FAILED_LOGINS_S
from mtl.doors.authentication import AccessDenied, PeerAuthenticator
from mtl.doors.config import DoorConfig
from mtl.doors.limits import DOOR_FAILED_LOGINS, DOOR_FAILED_LOGINS_ALL, DOOR_FAILED_S
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
        self.asked: list[tuple[str, str]] = []

    async def __call__(self, user: str, password: str) -> None:
        self.asked.append((user, password))
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
    assert checking.asked == [("alice", "secret")]


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
async def test_after_too_many_failures_log_ins_are_refused_without_a_check() -> None:
    checking = Checking(WRONG)
    authenticator = PeerAuthenticator(CONFIG, checking)
    for number in range(DOOR_FAILED_LOGINS):
        assert (await turned(authenticator, basic("alice", f"{number}"))).status is HTTPStatus.UNAUTHORIZED
    checking.answer = None
    assert (await turned(authenticator, basic("alice", "right"))).status is HTTPStatus.TOO_MANY_REQUESTS
    assert len(checking.asked) == DOOR_FAILED_LOGINS
    assert await authenticator.authenticate(basic("alice", "right"), "elsewhere", None) == "alice"


@in_loop
async def test_failures_of_all_peers_stay_below_the_brokers_lock_out() -> None:
    authenticator = PeerAuthenticator(CONFIG, Checking(WRONG))
    for number in range(DOOR_FAILED_LOGINS_ALL):
        outcome = await turned(authenticator, basic("alice", "wrong"), f"address {number}")
        assert outcome.status is HTTPStatus.UNAUTHORIZED
    outcome = await turned(authenticator, basic("alice", "right"), "elsewhere")
    assert outcome.status is HTTPStatus.TOO_MANY_REQUESTS
    assert DOOR_FAILED_LOGINS_ALL < FAILED_LOGINS_ADDRESS
    assert DOOR_FAILED_S <= FAILED_LOGINS_S
