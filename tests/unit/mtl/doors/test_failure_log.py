"""Failed subscriptions in the log."""

from __future__ import annotations

import logging

import pytest

from mtl.doors.failure_log import FailureLog, PeerAddress
from mtl.doors.limits import DOOR_FAILURES
from mtl.errors import Refused

GONE = Refused(404, "unknown-resource", "there is no such resource")


@pytest.mark.parametrize(
    ("name", "user", "words"),
    [
        (("192.0.2.1", 7), None, "192.0.2.1:7"),
        (("::1", 7, 0, 0), "alice", "[::1]:7 (user 'alice')"),
        ("", "al\nice", "a peer without an address (user 'al\\nice')"),
        (None, None, "a peer without an address"),
    ],
)
def test_a_peer_is_named_by_address_and_user(name: object, user: str | None, words: str) -> None:
    assert str(PeerAddress.at(name, user)) == words


def test_a_failure_is_logged_with_resource_peer_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    FailureLog(lambda: 0.0).record(PeerAddress("192.0.2.1"), "or\nders", GONE)
    assert caplog.messages == [f"the subscription of 192.0.2.1 to 'or\\nders' failed: {GONE}"]
    assert caplog.records[0].levelno == logging.WARNING


def test_lines_per_address_are_bounded_separately(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    failures = FailureLog(lambda: now)
    for _ in range(DOOR_FAILURES + 5):
        failures.record(PeerAddress("192.0.2.1"), "orders", GONE)
    assert len(caplog.messages) == DOOR_FAILURES
    failures.record(PeerAddress("192.0.2.2"), "orders", GONE)
    assert caplog.messages[-1].endswith("(5 failures before it were not logged)")
    now = 11.0
    failures.record(PeerAddress("192.0.2.1"), "orders", GONE)
    assert len(caplog.messages) == DOOR_FAILURES + 2
