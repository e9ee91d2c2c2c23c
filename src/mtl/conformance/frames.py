"""The encoding of RFC 11, for the checks: builds and parses headers, and shows frames as text."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

LEASE, RESPONSE, SUMMON, DISMISS, CONTENT, CONFIRM, REJECT, PING, PONG = range(1, 10)

NAMES = {
    LEASE: "Lease",
    RESPONSE: "Response",
    SUMMON: "Summon",
    DISMISS: "Dismiss",
    CONTENT: "Content",
    CONFIRM: "Confirm",
    REJECT: "Reject",
    PING: "Ping",
    PONG: "Pong",
}

NO_TABLE = b"\0\0\0\0"
"""An empty field table (PROTOCOL.md 1; the RFC leaves its encoding open)."""

_SHOWN = 200
"""Octets of a frame that are shown."""


class DataCommand(NamedTuple):
    """A data command: its type, its number (0 if it has none), the rest of its header, its body."""

    kind: int
    number: int
    rest: bytes
    body: bytes

    @property
    def name(self) -> str:
        """The name of a resource or a lease, which begins the rest of some headers."""
        return self.rest[1 : 1 + self.rest[0]].decode("utf-8", "replace") if self.rest else ""

    def __str__(self) -> str:
        """The command in words: `Content 1 'resource' with the body b'text'`."""
        words = [NAMES.get(self.kind, f"a command of type {self.kind}")]
        if self.kind not in {PING, PONG}:
            words.append(str(self.number))
        if self.kind in {LEASE, SUMMON, DISMISS, CONTENT}:
            words.append(repr(self.name))
        if self.kind in {CONFIRM, REJECT}:
            words += [name for name, flag in zip(("multiple", "recycle"), self.rest, strict=False) if flag]
        if self.body:
            words.append(f"with the body {self.body[:40]!r}")
        return " ".join(words)


def command(header: bytes, body: bytes) -> DataCommand:
    """Parse a data command. ValueError for a header that is empty or ends within its number."""
    if not header:
        raise ValueError("an empty header")
    kind = header[0]
    if kind in {PING, PONG}:
        return DataCommand(kind, 0, header[1:], body)
    if len(header) < 9:
        raise ValueError("a header that ends within its number")
    return DataCommand(kind, int.from_bytes(header[1:9], "big"), header[9:], body)


def numbered(kind: int, number: int, rest: bytes = b"") -> bytes:
    """A header of a command with a number."""
    return struct.pack(">BQ", kind, number) + rest


def short(text: str) -> bytes:
    """A short string."""
    raw = text.encode()
    return bytes([len(raw)]) + raw


def content(number: int, resource: str, table: bytes = NO_TABLE) -> bytes:
    """A header of a Content."""
    return numbered(CONTENT, number, short(resource) + table)


_SIZES = {
    tag: size
    for size, tags in {0: b"V", 1: b"tbB", 2: b"su", 4: b"Iif", 5: b"D", 8: b"lLdT"}.items()
    for tag in tags
}
"""Octets of a value by its tag; the others begin with their length in 32 bits (PROTOCOL.md 1)."""


def entries(table: bytes) -> dict[str, bytes]:
    """The entries of a field table: name -> tag and value, undecoded. ValueError if it is ill-formed."""
    if len(table) < 4 or len(table) != 4 + int.from_bytes(table[:4], "big"):
        raise ValueError(f"a field table of {len(table)} octets whose length is {octets(table[:4])}")
    values, at = {}, 4
    while at < len(table):
        value = at + 1 + table[at]
        name, tag = table[at + 1 : value], table[value : value + 1]
        size = _SIZES.get(tag[0]) if tag else None
        if size is None:
            size = 4 + int.from_bytes(table[value + 1 : value + 5], "big")
        at = value + 1 + size
        if not tag or at > len(table):
            raise ValueError(f"a field table that ends within the entry {name!r}")
        values[name.decode("utf-8", "replace")] = table[value:at]
    return values


def format_frames(frames: Sequence[bytes]) -> str:
    """Frames as text, or as hexadecimal digits if they are not printable text. Data commands have their words before
    them.
    """
    text = " | ".join(_describe(frame) for frame in frames)
    if len(frames) == 2 and frames[0][:1] and frames[0][0] in NAMES:
        try:
            return f"{command(frames[0], b'')}: {text}"
        except ValueError:
            pass  # an ill-formed header has hexadecimal digits only
    return text


def octets(data: bytes) -> str:
    """Octets as hexadecimal digits, for messages."""
    return data.hex(" ") or "(none)"


def _describe(frame: bytes) -> str:
    more = f"... ({len(frame)} octets)" if len(frame) > _SHOWN else ""
    head = frame[:_SHOWN]
    try:
        text = head.decode()
    except UnicodeDecodeError:
        return head.hex() + more
    text = text.replace("\r", "\\r").replace("\n", "\\n")  # indented JSON is text; no command has this type
    if text.isprintable():
        return (text or '""') + more
    return head.hex() + more
