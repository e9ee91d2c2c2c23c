"""Passwords that wait for their check, each of which takes milliseconds of another thread.

The addresses take turns: many wrong passwords from one address delay a right one from another by one check.
"""

from __future__ import annotations

from typing import NamedTuple

from mtl.broker import actions
from mtl.broker import limits as broker_limits
from mtl.broker.fair_queue import FairQueue
from mtl.broker.outbox import Outbox
from mtl.broker.steps import Outcome, run
from mtl.errors import Refused
from mtl.protocol.sasl.server import Check
from mtl.wire import control


class _Waiting(NamedTuple):
    check: Check
    is_right: Outcome[bool]


class PasswordChecks:
    """The checks, by address; at most `PASSWORD_CHECKS_AT_ONCE` are with the thread at a time."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._waiting: FairQueue[_Waiting] = FairQueue()
        self._under_way = 0

    def submit(self, address: str, check: Check) -> Outcome[bool]:
        """Check a password: whether it is right. Raises `Refused` 503 when too many wait, of this address or in all."""
        own = self._waiting.of(address)
        if own >= broker_limits.MAX_PASSWORD_CHECKS_ADDRESS:
            raise _overloaded(f"{own} passwords from this address wait for their check")
        if len(self._waiting) >= broker_limits.MAX_PASSWORD_CHECKS:
            raise _overloaded(f"{broker_limits.MAX_PASSWORD_CHECKS} passwords wait for their check")
        is_right: Outcome[bool] = Outcome()
        self._waiting.append(address, _Waiting(check, is_right))
        self._start()
        return is_right

    def _start(self) -> None:
        while self._waiting and self._under_way < broker_limits.PASSWORD_CHECKS_AT_ONCE:
            waiting = self._waiting.pop()
            self._under_way += 1
            run(self._perform(*waiting))

    async def _perform(self, check: Check, is_right: Outcome[bool]) -> None:
        right = await self._outbox.submit(
            lambda number: actions.CheckPassword(number, check.password, check.verifier)
        )
        self._under_way -= 1
        self._start()
        is_right.set(right)


def _overloaded(reason: str) -> Refused:
    return Refused(503, control.OVERLOADED, f"{reason}, which is the limit; try again")
