"""mc0 0.3: messages of frames, both ways. Pure functions.

    [envelope] VERB *(KEY VALUE) ["" *POSITIONAL]

The document shows bare frames; the implementations it describes put an empty frame before them (MC0-26). No verb is
empty, so both are understood, and a peer is answered in its own style. Everything but positionals is UTF-8 text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from mtl.doors.limits import MC0_FRAMES
from mtl.errors import Malformed
from mtl.limits import MAX_TABLE


class Verb(StrEnum):
    """The commands of the protocol."""

    NOOP = "NOOP"
    CONNECT = "CONNECT"
    DISCONNECT = "DISCONNECT"
    SUB = "SUB"
    UNSUB = "UNSUB"
    PUT = "PUT"
    MESSAGE = "MESSAGE"
    ERROR = "ERROR"
    OK = "OK"


_VERBS = {verb.encode(): verb for verb in Verb}

ID, TOPIC, TTL, VERSION, TEXT = "ID", "TOPIC", "TTL", "VERSION", "MESSAGE"
"""The reserved headers. TEXT is the message of an ERROR."""

_ID = ID.encode()

FREE = "X-"
"""Prefix of the names of free headers (MC0-06)."""


class Mc0Message(msgspec.Struct, frozen=True):
    """One message; `positional` is None where the delimiter before them is missing, too."""

    verb: Verb
    headers: Mapping[str, str] = {}
    positional: tuple[bytes, ...] | None = None

    @property
    def id(self) -> str | None:
        """The ID, which the answer repeats."""
        return self.headers.get(ID)


class BadMessage(Malformed):
    """Frames that are not a message. `id` is their ID, if it could be read, for the ERROR."""

    def __init__(self, text: str, id: str | None = None) -> None:  # noqa: A002 it is the header's name
        super().__init__(text)
        self.id = id


def decode(frames: Sequence[bytes]) -> tuple[Mc0Message, bool]:
    """The message of these frames, and whether a delimiter is before it. Raises `BadMessage`, and nothing else."""
    delimited = bool(frames) and not frames[0]
    if delimited:
        frames = frames[1:]
    if not frames:
        raise BadMessage("a message without a verb")
    if len(frames) > MC0_FRAMES:
        raise BadMessage(f"a message has at most {MC0_FRAMES} frames", _id(frames[1:MC0_FRAMES]))
    names = frames[1::2]
    end = 2 * names.index(b"") + 1 if b"" in names else None
    head = frames[1:end]
    headers: dict[str, str] = {}
    try:
        for name, value in zip(head[::2], head[1::2], strict=False):
            key = name.decode()
            if key in headers:
                raise BadMessage(f"header {key!r} is given twice", _id(head))
            headers[key] = value.decode()
        verb = _VERBS.get(frames[0])
        verb_text = frames[0].decode() if verb is None else verb
    except UnicodeDecodeError:
        raise BadMessage("verb and headers are UTF-8 text", _id(head)) from None
    if sum(map(len, head)) > MAX_TABLE:
        raise BadMessage(f"headers have at most {MAX_TABLE} octets", _id(head))
    if len(head) % 2:
        raise BadMessage("a header has no value", _id(head))
    if verb is None:
        raise BadMessage(f"there is no verb {verb_text[:40]!r}", _id(head))
    return Mc0Message(verb, headers, None if end is None else tuple(frames[end + 1 :])), delimited


def _id(head: Sequence[bytes]) -> str | None:
    """The ID among invalid headers, also one that is not UTF-8: `encode` restores its octets."""
    for name, value in zip(head[::2], head[1::2], strict=False):
        if name == _ID:
            return value.decode(errors="surrogateescape")
        if not name:
            break  # behind it are positional frames
    return None


def encode(message: Mc0Message, *, delimited: bool = False) -> list[bytes]:
    """The frames of a message."""
    frames = [b""] if delimited else []
    frames.append(message.verb.encode())
    for name, value in message.headers.items():
        frames += [name.encode(), value.encode(errors="surrogateescape")]
    if message.positional is not None:
        frames += [b"", *message.positional]
    return frames


def ok(id: str) -> Mc0Message:  # noqa: A002 it is the header's name
    """The answer to a command that succeeded (MC0-25)."""
    return Mc0Message(Verb.OK, {ID: id})


def error(text: str, id: str | None = None) -> Mc0Message:  # noqa: A002
    """The answer to a command that failed (MC0-24); also sent unsolicited, then without ID."""
    return Mc0Message(Verb.ERROR, {TEXT: text} if id is None else {TEXT: text, ID: id})
