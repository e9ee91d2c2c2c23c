"""mc0 0.3, the middleware's side of one peer. Sans IO; time is an argument, in monotonic seconds.

    IMPLICIT ──CONNECT──► CONNECTED ──CONNECT──► CONNECTED        every other command of a client: stays
        │                     │ └──────silent for 1.05 TTL──► ABSENT ──CONNECT──► CONNECTED
        └────DISCONNECT───────┴──► GONE                          └──anything else──► IMPLICIT, answered with ERROR

A CONNECT is not required (as upstream): a peer that never sent one has no TTL, so its silence has no effect. An absent
peer gets an ERROR in answer to its next message, and subscribes again.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec

from mtl.doors.limits import MC0_TTL_MS
from mtl.doors.mc0.codec import FREE, TOPIC, TTL, VERSION, Mc0Message, Verb
from mtl.doors.peer_messages import DoorRefusal

NOOP_AFTER = 0.95
"""Fraction of the TTL: our own silence after which we send NOOP (MC0-17, MC0-28)."""

SILENCE_LIMIT = 1.05
"""Multiple of the TTL: the peer's silence after which it counts as absent (MC0-18, MC0-28)."""


class Mc0State(Enum):
    """The state of a peer."""

    IMPLICIT = "implicit"
    CONNECTED = "connected"
    ABSENT = "absent"
    GONE = "gone"


_COMMANDS = (Verb.NOOP, Verb.SUB, Verb.UNSUB, Verb.PUT)

STEPS: Final[dict[Mc0State, dict[Verb, Mc0State]]] = {
    Mc0State.IMPLICIT: {
        **dict.fromkeys(_COMMANDS, Mc0State.IMPLICIT),
        Verb.CONNECT: Mc0State.CONNECTED,
        Verb.DISCONNECT: Mc0State.GONE,
    },
    Mc0State.CONNECTED: {
        **dict.fromkeys(_COMMANDS, Mc0State.CONNECTED),
        Verb.CONNECT: Mc0State.CONNECTED,
        Verb.DISCONNECT: Mc0State.GONE,
    },
    Mc0State.ABSENT: {Verb.CONNECT: Mc0State.CONNECTED, Verb.DISCONNECT: Mc0State.GONE},
    Mc0State.GONE: {},
}
"""The commands of a client; a missing entry is answered with ERROR."""

ANSWERS = frozenset({Verb.OK, Verb.ERROR})
"""Messages that are never answered: two ends would answer each other without end."""


class Put(msgspec.Struct, frozen=True):
    """PUT: `positional` frames to the subscribers of `topic`, with the free `headers` (names without X-)."""

    topic: str
    headers: tuple[tuple[str, str], ...]
    positional: tuple[bytes, ...]


class Sub(msgspec.Struct, frozen=True):
    """SUB: subscribe to contents from now on."""

    topics: tuple[str, ...]


class Unsub(msgspec.Struct, frozen=True):
    """UNSUB: end the subscriptions."""

    topics: tuple[str, ...]


class Leave(msgspec.Struct, frozen=True):
    """DISCONNECT: forget the peer."""


Event = Put | Sub | Unsub | Leave


class HeartbeatAction(Enum):
    """The action that is due by the clock."""

    NOTHING = "nothing"
    NOOP = "noop"
    ABSENT = "absent"


_TTL_DIGITS = 12
"""More than the longest TTL has, so that some leading zeros are accepted."""


class Mc0Session:
    """One peer. `received` returns the request of a message and raises `Refused` for a message that gets an ERROR."""

    __slots__ = ("_last_received", "_last_sent", "state", "ttl", "version")

    def __init__(self, now: float, state: Mc0State = Mc0State.IMPLICIT) -> None:
        self.state = state
        self.ttl: float | None = None
        """Seconds; None: the peer named none."""
        self.version: str | None = None
        self._last_received = self._last_sent = now

    def received(self, message: Mc0Message, now: float) -> Event | None:
        """The request of a message; None: at most an OK is due. Raises `Refused`."""
        self._last_received = now
        if message.verb in ANSWERS:
            return None
        after = STEPS[self.state].get(message.verb)
        if after is None:
            if self.state is Mc0State.ABSENT:
                self.state = Mc0State.IMPLICIT
                self.ttl = None
                raise DoorRefusal(
                    408, "absent", "you sent no message for longer than your TTL; CONNECT and SUB again"
                )
            raise DoorRefusal(400, "bad-verb", f"{message.verb} is not a message of a client")
        event = _READ[message.verb](self, message)
        self.state = after
        return event

    def sent(self, now: float) -> None:
        """Record that something was sent to the peer."""
        self._last_sent = now

    @property
    def due(self) -> float | None:
        """The earliest time at which `check` returns an action; None: never."""
        if self.ttl is None or self.state is not Mc0State.CONNECTED:
            return None
        return min(self._last_sent + NOOP_AFTER * self.ttl, self._last_received + SILENCE_LIMIT * self.ttl)

    def check(self, now: float) -> HeartbeatAction:
        """The action that is due: a NOOP, or the end of an absent peer (MC0-16 to 18)."""
        if self.ttl is None or self.state is not Mc0State.CONNECTED:
            return HeartbeatAction.NOTHING
        if now >= self._last_received + SILENCE_LIMIT * self.ttl:
            self.state = Mc0State.ABSENT
            return HeartbeatAction.ABSENT
        return (
            HeartbeatAction.NOOP
            if now >= self._last_sent + NOOP_AFTER * self.ttl
            else HeartbeatAction.NOTHING
        )

    def mark_silent(self) -> None:
        """Record that the peer reads nothing. Its next message gets an ERROR."""
        self.state = Mc0State.ABSENT

    # --- one per verb ---------------------------------------------------------------------------------------

    def _noop(self, _: Mc0Message) -> None:
        """The message only shows that the peer is alive."""

    def _connect(self, message: Mc0Message) -> None:
        version = message.headers.get(VERSION)
        if version is not None and version.partition(".")[0] != "0":
            raise DoorRefusal(
                400, "bad-version", f"VERSION {version[:20]!r}; this is mc0 0.3, which accepts 0.x"
            )
        ttl = message.headers.get(TTL)
        if ttl is not None and not (_is_short_number(ttl) and 0 < int(ttl) <= MC0_TTL_MS):
            raise DoorRefusal(
                400, "bad-ttl", f"TTL {ttl[:20]!r} is not a whole number of ms from 1 to {MC0_TTL_MS}"
            )
        self.version = version
        self.ttl = None if ttl is None else int(ttl) / 1000

    def _disconnect(self, _: Mc0Message) -> Leave:
        return Leave()

    def _sub(self, message: Mc0Message) -> Sub:
        return Sub(_topics(message))

    def _unsub(self, message: Mc0Message) -> Unsub:
        return Unsub(_topics(message))

    def _put(self, message: Mc0Message) -> Put:
        topic = message.headers.get(TOPIC)
        if not topic:
            raise DoorRefusal(400, "no-topic", "PUT needs the header TOPIC")
        free = tuple(
            (name.removeprefix(FREE), value)
            for name, value in message.headers.items()
            if name.startswith(FREE)
        )
        return Put(topic, free, message.positional or ())


_READ = {
    Verb.NOOP: Mc0Session._noop,  # noqa: SLF001 the table of this class's own methods
    Verb.CONNECT: Mc0Session._connect,  # noqa: SLF001
    Verb.DISCONNECT: Mc0Session._disconnect,  # noqa: SLF001
    Verb.SUB: Mc0Session._sub,  # noqa: SLF001
    Verb.UNSUB: Mc0Session._unsub,  # noqa: SLF001
    Verb.PUT: Mc0Session._put,  # noqa: SLF001
}


def _topics(message: Mc0Message) -> tuple[str, ...]:
    try:
        topics = tuple(frame.decode() for frame in message.positional or ())
    except UnicodeDecodeError:
        raise DoorRefusal(400, "bad-topic", "topics are UTF-8 text") from None
    if not topics or not all(topics):
        raise DoorRefusal(400, "no-topic", f'{message.verb} needs topics after the "" frame')
    return topics


def _is_short_number(digits: str) -> bool:
    """Whether these are decimal digits, few enough for a TTL: Python refuses to convert thousands."""
    return digits.isascii() and digits.isdecimal() and len(digits) <= _TTL_DIGITS
