"""The audit log: log-ins, refusals and changes, one line for each, never with a secret.

A change always has its line. Only refusals have a limited rate, counted for each user at each address: no user can
hide its changes behind other lines, or the refusals of another user behind its own.

The lines go to the logger `mtl.audit`. Its records carry the members as `fields`, for formatters that write JSON; the
message has the same members as text: `login-refused user="alice" address="10.0.0.7"`. SECURITY.md lists the events.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from mtl.broker.access.caller import Caller
from mtl.broker.leases.lease import LeaseTerms
from mtl.errors import Refused
from mtl.net.pace import Pace
from mtl.storage.records import GrantRecord, UserRecord
from mtl.wire import control

log = logging.getLogger("mtl.audit")

AUDIT_BURST: Final = 200
"""Refusals of one event that one user may cause at once from one address: enough for a cluster's executors with an old
password."""

AUDIT_PER_S: Final = 2.0
"""Refusals of one event that one user may cause per second from one address in the long run: about 400 octets each,
70 MB a day."""

AUDIT_SUMMARY_S: Final = 60.0
"""Seconds between two reports of the number of omitted lines."""

AUDIT_LEFT_OUT: Final = 1_000
"""Triples of event, user and address whose omitted lines are counted separately. All further ones share one count."""

AUDIT_NAMES: Final = 10
"""Most names of a list in one line; a request may have thousands. A change has as many lines as its names need."""

AUDIT_TEXT: Final = 1_000
"""Most characters of one text in a line; a name has up to 255 octets, a reason may have several names."""

_Cause = tuple[str, str | None, str | None]
"""(event, user, address) of a refusal."""

_OTHERS: Final[_Cause] = ("others", "others", "others")


class AuditEvent(StrEnum):
    """The event that a line reports."""

    LOGIN = "login"
    LOGIN_REFUSED = "login-refused"
    CONNECTION_REFUSED = "connection-refused"
    NOT_AUTHORIZED = "not-authorized"
    QUOTA_EXCEEDED = "quota-exceeded"
    RESOURCE_CREATED = "resource-created"
    RESOURCE_DELETED = "resource-deleted"
    QUEUE_DELETED = "queue-deleted"
    CURSOR_RESET = "cursor-reset"
    CURSOR_DELETED = "cursor-deleted"
    STAGES_ABORTED = "stages-aborted"
    APPLICATION_FORGOTTEN = "application-forgotten"
    LEASE_ENDED = "lease-ended"
    USER_ADDED = "user-added"
    USER_REMOVED = "user-removed"
    PASSWORD_CHANGED = "password-changed"  # noqa: S105 the name of an event
    KEYS_CHANGED = "keys-changed"
    GRANTED = "granted"
    REVOKED = "revoked"
    LEFT_OUT = "left-out"


_WARNINGS: Final = frozenset({
    AuditEvent.LOGIN_REFUSED,
    AuditEvent.CONNECTION_REFUSED,
    AuditEvent.NOT_AUTHORIZED,
    AuditEvent.QUOTA_EXCEEDED,
    AuditEvent.LEASE_ENDED,
    AuditEvent.LEFT_OUT,
})  # fmt: skip
"""Events logged at level "warning"; all others at "info"."""

_PACED: Final = frozenset({
    AuditEvent.LOGIN_REFUSED,
    AuditEvent.CONNECTION_REFUSED,
    AuditEvent.NOT_AUTHORIZED,
    AuditEvent.QUOTA_EXCEEDED,
})  # fmt: skip
"""Refusals, which change nothing: their rate is limited."""

_REFUSALS: Final = {
    control.NOT_AUTHORIZED: AuditEvent.NOT_AUTHORIZED,
    control.QUOTA: AuditEvent.QUOTA_EXCEEDED,
}
"""The events of refusals, by reason; other refusals are not logged."""

_REQUESTS: Final[Mapping[type, tuple[AuditEvent, tuple[str, ...]]]] = {
    control.ResourceDelete: (AuditEvent.RESOURCE_DELETED, ("resource",)),
    control.QueueDelete: (AuditEvent.QUEUE_DELETED, ("resource", "group")),
    control.CursorReset: (AuditEvent.CURSOR_RESET, ("resource", "group")),
    control.CursorDelete: (AuditEvent.CURSOR_DELETED, ("resource", "group")),
    control.StageAbort: (AuditEvent.STAGES_ABORTED, ("stages",)),
    control.StageForget: (AuditEvent.APPLICATION_FORGOTTEN, ("application",)),
}
"""Requests that are logged when they have been carried out, and which of their members are logged."""


class Audit:
    """Writes the lines. For the refusals above its rate a user gets a count of the omitted lines instead, once in
    `AUDIT_SUMMARY_S`. `clock` is in monotonic seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._pace = Pace(clock, AUDIT_BURST, AUDIT_PER_S)
        self._left_out: Counter[_Cause] = Counter()

    def write(
        self, event: AuditEvent, address: str | None = None, user: str | None = None, **fields: object
    ) -> None:
        """Write an event: one line, or several for a change of more than `AUDIT_NAMES` names. A field that is None is
        left out.
        """
        cause = (event.value, user, address)
        if event in _PACED and not self._pace.admits(cause):
            full = len(self._left_out) >= AUDIT_LEFT_OUT and cause not in self._left_out
            self._left_out[_OTHERS if full else cause] += 1
            return
        members = {"event": event.value, "address": address, "user": user, **fields}
        present = {name: value for name, value in members.items() if value is not None}
        for line in [present] if event in _PACED else _lines(present):
            _write(event, line)

    def answered(self, caller: Caller, request: control.Request, outcome: object) -> None:
        """Log an answered request if it changed something, or was refused for lack of a right or a quota."""
        if isinstance(outcome, Refused):
            event = _REFUSALS.get(outcome.reason)
            if event is not None:
                self._by(event, caller, command=request.command, reason=str(outcome))
            return
        known = _REQUESTS.get(type(request))
        if known is not None:
            event, members = known
            self._by(event, caller, **{name: getattr(request, name) for name in members})

    def created(self, caller: Caller | None, vhost: str, resource: str) -> None:
        """Log the creation of a resource, by a client or (None) by the broker itself."""
        if caller is None:
            self.write(AuditEvent.RESOURCE_CREATED, **{"virtual-host": vhost}, resource=resource)
        else:
            self._by(AuditEvent.RESOURCE_CREATED, caller, resource=resource)

    def _by(self, event: AuditEvent, caller: Caller, **fields: object) -> None:
        self.write(event, caller.address, caller.principal, **{"virtual-host": caller.vhost}, **fields)

    def ended(self, terms: LeaseTerms, reason: str) -> None:
        """Log a lease that the broker ended, not its client."""
        where = {"virtual-host": terms.vhost, "resources": list(terms.resources)}
        self.write(AuditEvent.LEASE_ENDED, None, terms.principal, **where, reason=reason)

    def users(self, before: Mapping[str, UserRecord], now: Mapping[str, UserRecord]) -> None:
        """Log an administrator's changes of users and grants."""
        for name in sorted({*before, *now}):
            for event, fields in _changes(before.get(name), now.get(name)):
                self.write(event, None, name, **fields)

    @property
    def is_behind(self) -> bool:
        """Whether there are omitted lines that no line has reported yet."""
        return bool(self._left_out)

    def catch_up(self) -> None:
        """Report the numbers of omitted lines."""
        left_out, self._left_out = self._left_out, Counter()
        for (event, user, address), count in left_out.items():
            self.write(AuditEvent.LEFT_OUT, address, user, of=event, lines=count)


def _lines(members: Mapping[str, object]) -> Iterator[dict[str, object]]:
    """The lines of a change: each has all members, and at most `AUDIT_NAMES` names of a list."""
    lists = {name: value for name, value in members.items() if isinstance(value, list)}
    most = max((len(value) for value in lists.values()), default=0)
    for begin in range(0, max(most, 1), AUDIT_NAMES):
        yield {**members, **{name: value[begin : begin + AUDIT_NAMES] for name, value in lists.items()}}


def _write(event: AuditEvent, fields: Mapping[str, object]) -> None:
    shortened = {name: _shortened(value) for name, value in fields.items()}
    line = (
        f"{name}={msgspec.json.encode(value).decode()}"
        for name, value in shortened.items()
        if name != "event"
    )
    level = logging.WARNING if event in _WARNINGS else logging.INFO
    log.log(level, "%s %s", event.value, " ".join(line), extra={"fields": shortened})


def _shortened(value: object) -> object:
    if isinstance(value, list) and len(value) > AUDIT_NAMES:
        return [*value[:AUDIT_NAMES], f"and {len(value) - AUDIT_NAMES} more"]
    return f"{value[:AUDIT_TEXT]}..." if isinstance(value, str) and len(value) > AUDIT_TEXT else value


def _changes(
    before: UserRecord | None, now: UserRecord | None
) -> Iterator[tuple[AuditEvent, dict[str, object]]]:
    """The changes of one user. Neither a password nor anything derived from it is written."""
    if now is None:
        yield AuditEvent.USER_REMOVED, {}
        return
    if before is None:
        yield AuditEvent.USER_ADDED, {}
    elif before.password != now.password:
        yield AuditEvent.PASSWORD_CHANGED, {}
    known = before or UserRecord(now.name)
    if set(known.keys) != set(now.keys):
        added, removed = sorted({*now.keys} - {*known.keys}), sorted({*known.keys} - {*now.keys})
        yield AuditEvent.KEYS_CHANGED, {"added": added, "removed": removed}
    for event, grants in (
        (AuditEvent.GRANTED, {*now.grants} - {*known.grants}),
        (AuditEvent.REVOKED, {*known.grants} - {*now.grants}),
    ):
        for grant in sorted(grants):
            yield event, _grant_fields(grant)


def _grant_fields(grant: GrantRecord) -> dict[str, object]:
    return {"virtual-host": grant.vhost, "right": grant.right, "pattern": grant.pattern}
