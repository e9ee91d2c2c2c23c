"""The publisher's name in a subscribe, whose meaning the document leaves to the two ends (RS-27).

    <resource>?from=earliest|latest|<sequence>&envelope=seq     contents; from the earliest without from=
    $publish/<resource>                                         confirmations of the peer's own contents

Names are percent-encoded where they hold `?` or `%`. With `envelope=seq` each element begins with the content's
sequence in eight octets, so that a subscriber knows where to continue.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote

from mtl.client.reader_part import Start
from mtl.doors.peer_messages import DoorRefusal
from mtl.doors.properties import sequence_of
from mtl.errors import Refused

PUBLISH = "$publish/"
SEQUENCE_OCTETS = 8


@dataclass(frozen=True, slots=True)
class ResourceContents:
    """The contents of a resource; `enveloped` with their sequences."""

    resource: str
    start: Start = "earliest"
    enveloped: bool = False


@dataclass(frozen=True, slots=True)
class Confirmations:
    """Confirmations of durable contents; `back` is the name to which the door subscribes for the contents."""

    resource: str
    back: str


def parse(publisher: str) -> ResourceContents | Confirmations:
    """Parse a name. Raises `Refused` (400) for an invalid one."""
    if publisher.startswith(PUBLISH):
        back = publisher.removeprefix(PUBLISH)
        return Confirmations(_resource(back), back)
    name, _, query = publisher.partition("?")
    start: Start = "earliest"
    enveloped = False
    try:
        options = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=2)
    except ValueError:
        raise _invalid_name(query, "options are from=... and envelope=seq, with & between") from None
    for key, value in options:
        match key, value:
            case "from", "earliest" | "latest":
                start = "earliest" if value == "earliest" else "latest"
            case "from", _ if (sequence := sequence_of(value)) is not None:
                start = sequence
            case "envelope", "seq":
                enveloped = True
            case _:
                raise _invalid_name(f"{key}={value}", "from=earliest|latest|<sequence>, and envelope=seq")
    return ResourceContents(_resource(name), start, enveloped)


def contents(resource: str, start: Start, *, enveloped: bool) -> str:
    """The name of a resource's contents."""
    return f"{_quoted(resource)}?from={start}" + ("&envelope=seq" if enveloped else "")


def confirmations(resource: str) -> Confirmations:
    """The two names for publishing to a resource; the first is PUBLISH and `back`."""
    back = _quoted(resource)
    return Confirmations(resource, back)


def _quoted(resource: str) -> str:
    return quote(resource, safe="/$:@!&'()*+,;= ")


def _resource(quoted: str) -> str:
    try:
        resource = unquote(quoted, errors="strict")
    except UnicodeDecodeError:
        raise _invalid_name(quoted, "a resource is UTF-8 text") from None
    if not resource:
        raise _invalid_name(quoted, "the name of a resource is missing")
    return resource


def _invalid_name(name: str, expected: str) -> Refused:
    return DoorRefusal(400, "bad-publisher", f"{name[:80]!r}: {expected}")
