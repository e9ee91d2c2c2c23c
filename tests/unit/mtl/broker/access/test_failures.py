from __future__ import annotations

import pytest

from mtl.broker import actions as a
from mtl.broker import limits as broker_limits
from mtl.broker.access.failures import LoginFailures
from mtl.broker.outbox import Outbox


@pytest.fixture
def outbox() -> Outbox:
    return Outbox()


def fail(failures: LoginFailures, times: int, address: str, user: str) -> None:
    for _ in range(times):
        failures.count(address, user)


def test_a_user_from_an_address_has_so_many_tries_in_a_time(outbox: Outbox) -> None:
    failures = LoginFailures(outbox)
    fail(failures, broker_limits.FAILED_LOGINS - 1, "here", "me")
    assert not failures.too_many("here", "me")
    fail(failures, 1, "here", "me")
    assert failures.too_many("here", "me")
    assert not failures.too_many("there", "me"), "nobody locks another's user out"
    assert not failures.too_many("here", "you"), "one wrong password does not lock out a whole machine"
    outbox.now = a.Now(broker_limits.FAILED_LOGINS_S, 0)
    assert not failures.too_many("here", "me")


def test_a_list_of_names_buys_nothing(outbox: Outbox) -> None:
    failures = LoginFailures(outbox)
    for number in range(broker_limits.FAILED_LOGINS_ADDRESS):
        assert not failures.too_many("here", "someone")
        failures.count("here", f"user {number}")
    assert failures.too_many("here", "someone")


def test_the_oldest_leave_first(outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "MAX_FAILED_LOGINS", 4)
    failures = LoginFailures(outbox)
    for address in ("a", "b", "c"):
        fail(failures, broker_limits.FAILED_LOGINS, address, "me")
    assert [failures.too_many(x, "me") for x in "abc"] == [False, True, True]
    assert len(failures._counts) == 4
