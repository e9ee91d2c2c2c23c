"""The state tables of RFC 11/MTL. Open this file first: whatever moves a session from one state to another is here.

Both ends read the same tables. A step is keyed by WHO sends WHAT; a client's session asks the table about its own
commands before it sends them and about the broker's when they arrive, and a broker's session does the reverse. There is
no second copy of a rule for the other end to disagree with.

A missing key is the protocol error. What is done about it depends on whose step it was: our own caller gets a
`LocalError`, a peer gets the answer that the RFC names (a Response, a status) or silence.

Control flow (RFC 11 "Client Authentication", "Selecting a Profile", "Requesting a Data Lease")

    NEW ──Open/201──► READY ──Profile/200──► PROFILED ──Reader, Writer/202, class methods/200──► PROFILED
     │Open/401                                  any ──anything/401──► UNAUTHORIZED
     ▼                                          any ──Authorize/402──► CHALLENGED
    UNAUTHORIZED ──Authorize/201──► READY ──the same principal had a profile──► PROFILED (the broker's own view)
    READY, PROFILED ──credentials changed──► UNAUTHORIZED (the broker's own view; the client hears of it by a 401)

    A status that a row does not name (400, 403, 404 …) changes nothing.

Data flow, one per DEALER connection (RFC 11 "Initializing a Data Flow")

    UNBOUND ──client Lease──► LEASING ──broker Response 200, 201──► BOUND
                                 └──────broker Response 403──► UNBOUND

    Until the first Response the client may pipeline whatever it likes (MTL-65). A further Lease on a bound flow (the
    other kind, or a repeat) leaves it bound.

Resource, one per name summoned on a flow (RFC 11 "Summoning a Resource", "Dismissing a Resource")

    DISMISSED ──client Summon──► SUMMONING ──200──► SUMMONED ──client Dismiss──► DISMISSING ──200──► DISMISSED
        ▲──────────400──────────────┘                  ▲──────────400───────────────┘

    Content from the broker is legal in SUMMONED, and in DISMISSING until its 200 (MTL-81, MTL-82).
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from mtl.wire import commands as c
from mtl.wire import control as w


class _Key(StrEnum):
    """A member is a key of the tables, looked up for every command: Enum's own hash is a function in Python."""

    __hash__ = object.__hash__


class Peer(_Key):
    """The two ends of a flow."""

    CLIENT = "client"
    BROKER = "broker"

    @property
    def other(self) -> Peer:
        """The end that this one talks to."""
        return Peer.BROKER if self is Peer.CLIENT else Peer.CLIENT


CLIENT, BROKER = Peer.CLIENT, Peer.BROKER


# --- control flow -------------------------------------------------------------------------------------------


class Control(_Key):
    """States of a control session; the broker keeps one per REQ identity."""

    NEW = "new"
    UNAUTHORIZED = "unauthorized"
    CHALLENGED = "challenged"
    READY = "ready"
    PROFILED = "profiled"


class Request(_Key):
    """The kinds of control requests that the table tells apart."""

    OPEN = "open"
    AUTHORIZE = "authorize"
    PROFILE = "profile"
    LEASE = "lease"  # Connection.Reader, Connection.Writer
    CLASS = "class"  # every method of the profile's own classes


_SASL: Final = {
    Request.OPEN: {201: Control.READY, 401: Control.UNAUTHORIZED},
    Request.AUTHORIZE: {201: Control.READY, 402: Control.CHALLENGED, 401: Control.UNAUTHORIZED},
}
_SELECT: Final = {Request.PROFILE: {200: Control.PROFILED, 401: Control.UNAUTHORIZED}}

CONTROL: Final[dict[Control, dict[Request, dict[int, Control]]]] = {
    Control.NEW: {Request.OPEN: _SASL[Request.OPEN]},
    Control.UNAUTHORIZED: _SASL,
    Control.CHALLENGED: _SASL,
    Control.READY: {**_SASL, **_SELECT},
    Control.PROFILED: {
        **_SASL,
        **_SELECT,
        Request.LEASE: {202: Control.PROFILED, 401: Control.UNAUTHORIZED},
        Request.CLASS: {200: Control.PROFILED, 401: Control.UNAUTHORIZED},
    },
}

SUSPENDED: Final[dict[Control, Control]] = {
    **{state: state for state in Control},
    Control.READY: Control.UNAUTHORIZED,
    Control.PROFILED: Control.UNAUTHORIZED,
}
"""Where a session stands when the credentials that it was opened with no longer count."""

PROFILE_KEPT: Final[dict[Control, Control]] = {
    **{state: state for state in Control},
    Control.READY: Control.PROFILED,
}
"""Where the broker's session stands after an Authorize/201 of the principal that had selected a profile before."""

_OPEN_FIRST = (
    "send Connection.Open first (MTL-21); after a log-in without encryption repeat the `session` of the 201, or have "
    "the broker configured with sessions-by-identity (PROTOCOL.md 2.1)"
)

OUT_OF_TURN: Final[dict[Control, tuple[int, str, str]]] = {
    Control.NEW: (400, w.NOT_OPEN, _OPEN_FIRST),
    Control.UNAUTHORIZED: (401, w.NOT_AUTHORIZED, "authenticate with Connection.Authorize first"),
    Control.CHALLENGED: (
        401,
        w.NOT_AUTHORIZED,
        "answer the challenge with Connection.Authorize first (MTL-33)",
    ),
    Control.READY: (400, w.NO_PROFILE, "select a profile with Connection.Profile first (MTL-45)"),
    Control.PROFILED: (501, w.UNKNOWN_COMMAND, "the selected profile has no such command"),
}
"""What a request gets that the table has no row for: (status, reason, message)."""


# --- data flow ----------------------------------------------------------------------------------------------


class Flow(_Key):
    """States of a data flow; one per DEALER connection."""

    UNBOUND = "unbound"
    LEASING = "leasing"
    BOUND = "bound"


class Resource(_Key):
    """States of a resource on a data flow."""

    DISMISSED = "dismissed"
    SUMMONING = "summoning"
    SUMMONED = "summoned"
    DISMISSING = "dismissing"


OK, FORBIDDEN, CANNOT = 200, 403, 400
"""The response codes of RFC 11: accepted, lease refused, resource cannot be summoned or dismissed."""

NEWLY_BOUND = 201
LEASE_ENDED = 0
"""The sequence of a Response 403 that answers nothing: a lease of the flow has failed (PROTOCOL.md 3)."""

"""The 200 to a Lease that was not bound to this flow until now, for a client that asked to be told (PROTOCOL.md 3)."""

FlowEvent = tuple[Peer, type[c.Command]]

# Whatever is bound or about to be may exchange these; they never move the flow itself.
_TRAFFIC: Final[tuple[FlowEvent, ...]] = (
    (CLIENT, c.Summon),
    (CLIENT, c.Dismiss),
    (CLIENT, c.Content),
    (BROKER, c.Content),
    (CLIENT, c.Confirm),
    (BROKER, c.Confirm),
    (CLIENT, c.Reject),
    (BROKER, c.Reject),
    (CLIENT, c.Ping),
    (BROKER, c.Ping),
    (CLIENT, c.Pong),
    (BROKER, c.Pong),
)

FLOW: Final[dict[Flow, dict[FlowEvent, Flow]]] = {
    Flow.UNBOUND: {
        (CLIENT, c.Lease): Flow.LEASING,
        # The broker answers a Summon or Dismiss that came before any Lease with 403 (PROTOCOL.md 3).
        (BROKER, c.Response): Flow.UNBOUND,
    },
    Flow.LEASING: {
        (CLIENT, c.Lease): Flow.LEASING,
        (BROKER, c.Response): Flow.LEASING,
        **dict.fromkeys(_TRAFFIC, Flow.LEASING),
    },
    Flow.BOUND: {
        (CLIENT, c.Lease): Flow.BOUND,
        (BROKER, c.Response): Flow.BOUND,
        **dict.fromkeys(_TRAFFIC, Flow.BOUND),
    },
}

LEASED: Final[dict[Flow, dict[int, Flow]]] = {
    Flow.LEASING: {OK: Flow.BOUND, NEWLY_BOUND: Flow.BOUND, FORBIDDEN: Flow.UNBOUND},
    Flow.BOUND: {OK: Flow.BOUND, NEWLY_BOUND: Flow.BOUND, FORBIDDEN: Flow.BOUND},
}
"""Where the Response to a Lease moves the flow. A refused second Lease leaves the first one bound."""

ResourceEvent = tuple[Peer, type[c.Command]] | tuple[Peer, type[c.Command], int]

RESOURCE: Final[dict[Resource, dict[ResourceEvent, Resource]]] = {
    Resource.DISMISSED: {(CLIENT, c.Summon): Resource.SUMMONING},
    Resource.SUMMONING: {
        (BROKER, c.Response, OK): Resource.SUMMONED,
        (BROKER, c.Response, CANNOT): Resource.DISMISSED,
        (BROKER, c.Response, FORBIDDEN): Resource.DISMISSED,
    },
    Resource.SUMMONED: {
        (BROKER, c.Content): Resource.SUMMONED,
        (CLIENT, c.Dismiss): Resource.DISMISSING,
    },
    Resource.DISMISSING: {
        (BROKER, c.Content): Resource.DISMISSING,
        (BROKER, c.Response, OK): Resource.DISMISSED,
        (BROKER, c.Response, CANNOT): Resource.SUMMONED,
        (BROKER, c.Response, FORBIDDEN): Resource.SUMMONED,
    },
}
