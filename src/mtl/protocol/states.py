"""The state tables of RFC 11/MTL: every transition of a session. Read this file first.

Both ends use the same tables. A step is keyed by its sender and its command: a client's session looks up its own
commands before it sends them and the broker's when they arrive, and a broker's session does the reverse.

A missing key is a protocol error. For a step of this end the caller gets a `LocalError`; for a step of the peer the
peer gets the answer that the RFC names (a Response, a status) or none.

Control flow (RFC 11 "Client Authentication", "Selecting a Profile", "Requesting a Data Lease")

    NEW ──Open/201──► READY ──Profile/200──► PROFILED ──Reader, Writer/202, class methods/200──► PROFILED
     │Open/401                                  any ──anything/401──► UNAUTHORIZED
     ▼                                          any ──Authorize/402──► CHALLENGED
    UNAUTHORIZED ──Authorize/201──► READY ──the same principal had a profile──► PROFILED (at the broker only)
    READY, PROFILED ──credentials changed──► UNAUTHORIZED (at the broker only; the client learns of it by a 401)

    A status that a row does not name (400, 403, 404 …) changes nothing.

Data flow, one per DEALER connection (RFC 11 "Initializing a Data Flow")

    UNBOUND ──client Lease──► LEASING ──broker Response 200, 201──► BOUND
                                 └──────broker Response 403──► UNBOUND

    Until the first Response the client may pipeline any commands (MTL-65). A further Lease on a bound flow (the
    other kind, or a repeat) leaves it bound.

Resource, one per name summoned on a flow (RFC 11 "Summoning a Resource", "Dismissing a Resource")

    DISMISSED ──client Summon──► SUMMONING ──200──► SUMMONED ──client Dismiss──► DISMISSING ──200──► DISMISSED
        ▲──────────400──────────────┘                  ▲──────────400───────────────┘

    Content from the broker is legal in SUMMONED, and in DISMISSING until its 200 (MTL-81, MTL-82).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from mtl.wire import commands, control


class _Key(StrEnum):
    """A key of the tables, looked up for every command. Enum's own hash is slower, since it is written in Python."""

    __hash__ = object.__hash__


class End(_Key):
    """The two ends of a flow."""

    CLIENT = "client"
    BROKER = "broker"

    @property
    def other(self) -> End:
        """The opposite end."""
        return End.BROKER if self is End.CLIENT else End.CLIENT


CLIENT, BROKER = End.CLIENT, End.BROKER


# --- control flow -------------------------------------------------------------------------------------------


class Control(_Key):
    """States of a control session; the broker keeps one per REQ identity."""

    NEW = "new"
    UNAUTHORIZED = "unauthorized"
    CHALLENGED = "challenged"
    READY = "ready"
    PROFILED = "profiled"


class RequestKind(_Key):
    """The kinds of control requests that the table distinguishes."""

    OPEN = "open"
    AUTHORIZE = "authorize"
    PROFILE = "profile"
    LEASE = "lease"  # Connection.Reader, Connection.Writer
    CLASS = "class"  # every method of the profile's own classes


_SASL: Final = {
    RequestKind.OPEN: {201: Control.READY, 401: Control.UNAUTHORIZED},
    RequestKind.AUTHORIZE: {201: Control.READY, 402: Control.CHALLENGED, 401: Control.UNAUTHORIZED},
}
_SELECT: Final = {RequestKind.PROFILE: {200: Control.PROFILED, 401: Control.UNAUTHORIZED}}

CONTROL: Final[dict[Control, dict[RequestKind, dict[int, Control]]]] = {
    Control.NEW: {RequestKind.OPEN: _SASL[RequestKind.OPEN]},
    Control.UNAUTHORIZED: _SASL,
    Control.CHALLENGED: _SASL,
    Control.READY: {**_SASL, **_SELECT},
    Control.PROFILED: {
        **_SASL,
        **_SELECT,
        RequestKind.LEASE: {202: Control.PROFILED, 401: Control.UNAUTHORIZED},
        RequestKind.CLASS: {200: Control.PROFILED, 401: Control.UNAUTHORIZED},
    },
}

SUSPENDED: Final[dict[Control, Control]] = {
    **{state: state for state in Control},
    Control.READY: Control.UNAUTHORIZED,
    Control.PROFILED: Control.UNAUTHORIZED,
}
"""The state of a session after its credentials have become invalid."""

PROFILE_KEPT: Final[dict[Control, Control]] = {
    **{state: state for state in Control},
    Control.READY: Control.PROFILED,
}
"""The state of the broker's session after an Authorize/201 of the principal that had selected a profile before."""

_OPEN_FIRST = (
    "send Connection.Open first (MTL-21); after a log-in without encryption repeat the `session` of the 201, or have "
    "the broker configured with sessions-by-identity (PROTOCOL.md 2.1)"
)

OUT_OF_TURN: Final[dict[Control, tuple[int, str, str]]] = {
    Control.NEW: (400, control.NOT_OPEN, _OPEN_FIRST),
    Control.UNAUTHORIZED: (401, control.NOT_AUTHORIZED, "authenticate with Connection.Authorize first"),
    Control.CHALLENGED: (
        401,
        control.NOT_AUTHORIZED,
        "answer the challenge with Connection.Authorize first (MTL-33)",
    ),
    Control.READY: (400, control.NO_PROFILE, "select a profile with Connection.Profile first (MTL-45)"),
    Control.PROFILED: (501, control.UNKNOWN_COMMAND, "the selected profile has no such command"),
}
"""The refusal of a request without a row in the table: (status, reason, message)."""


# --- data flow ----------------------------------------------------------------------------------------------


class FlowState(_Key):
    """States of a data flow; one per DEALER connection."""

    UNBOUND = "unbound"
    LEASING = "leasing"
    BOUND = "bound"


class ResourceState(_Key):
    """States of a resource on a data flow."""

    DISMISSED = "dismissed"
    SUMMONING = "summoning"
    SUMMONED = "summoned"
    DISMISSING = "dismissing"


OK, FORBIDDEN, CANNOT = 200, 403, 400
"""The response codes of RFC 11: accepted, lease refused, resource cannot be summoned or dismissed."""

NEWLY_BOUND = 201
"""As 200, for a Lease that was not bound to this flow before and asked for `binding` (PROTOCOL.md 3)."""

LEASE_ENDED = 0
"""The sequence of a Response 403 that answers no command: a lease of the flow has failed (PROTOCOL.md 3)."""

FlowEvent = tuple[End, type[commands.Command]]

# Commands of a flow that is bound or being bound; they never change the state of the flow.
_TRAFFIC: Final[tuple[FlowEvent, ...]] = (
    (CLIENT, commands.Summon),
    (CLIENT, commands.Dismiss),
    (CLIENT, commands.Content),
    (BROKER, commands.Content),
    (CLIENT, commands.Confirm),
    (BROKER, commands.Confirm),
    (CLIENT, commands.Reject),
    (BROKER, commands.Reject),
    (CLIENT, commands.Ping),
    (BROKER, commands.Ping),
    (CLIENT, commands.Pong),
    (BROKER, commands.Pong),
)

FLOW: Final[dict[FlowState, dict[FlowEvent, FlowState]]] = {
    FlowState.UNBOUND: {
        (CLIENT, commands.Lease): FlowState.LEASING,
        # The broker answers a Summon or Dismiss that came before any Lease with 403 (PROTOCOL.md 3).
        (BROKER, commands.Response): FlowState.UNBOUND,
    },
    FlowState.LEASING: {
        (CLIENT, commands.Lease): FlowState.LEASING,
        (BROKER, commands.Response): FlowState.LEASING,
        **dict.fromkeys(_TRAFFIC, FlowState.LEASING),
    },
    FlowState.BOUND: {
        (CLIENT, commands.Lease): FlowState.BOUND,
        (BROKER, commands.Response): FlowState.BOUND,
        **dict.fromkeys(_TRAFFIC, FlowState.BOUND),
    },
}

LEASED: Final[dict[FlowState, dict[int, FlowState]]] = {
    FlowState.LEASING: {OK: FlowState.BOUND, NEWLY_BOUND: FlowState.BOUND, FORBIDDEN: FlowState.UNBOUND},
    FlowState.BOUND: {OK: FlowState.BOUND, NEWLY_BOUND: FlowState.BOUND, FORBIDDEN: FlowState.BOUND},
}
"""The state of the flow after the Response to a Lease. A refused second Lease leaves the first one bound."""

ResourceEvent = tuple[End, type[commands.Command]] | tuple[End, type[commands.Command], int]

RESOURCE: Final[dict[ResourceState, dict[ResourceEvent, ResourceState]]] = {
    ResourceState.DISMISSED: {(CLIENT, commands.Summon): ResourceState.SUMMONING},
    ResourceState.SUMMONING: {
        (BROKER, commands.Response, OK): ResourceState.SUMMONED,
        (BROKER, commands.Response, CANNOT): ResourceState.DISMISSED,
        (BROKER, commands.Response, FORBIDDEN): ResourceState.DISMISSED,
    },
    ResourceState.SUMMONED: {
        (BROKER, commands.Content): ResourceState.SUMMONED,
        (CLIENT, commands.Dismiss): ResourceState.DISMISSING,
    },
    ResourceState.DISMISSING: {
        (BROKER, commands.Content): ResourceState.DISMISSING,
        (BROKER, commands.Response, OK): ResourceState.DISMISSED,
        (BROKER, commands.Response, CANNOT): ResourceState.SUMMONED,
        (BROKER, commands.Response, FORBIDDEN): ResourceState.SUMMONED,
    },
}
