"""The negotiation of a connection's extensions: the client's proposal, the server's reply, the client's final lists
(MM2-14).

    extensions  name[:property=value[,property=value]] joined by ";"          (MM2-15)

Final lists: an extension is required if either end requires it, and optional if both offer it. Ids are 1-based places
in the final lists, required before optional (MM2-26). Of two kinds of acknowledgement the first one holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mtl.doors.limits import MM2_EXTENSIONS, MM2_WINDOW
from mtl.doors.micromessage.codec import MAJOR, MINOR, Handshake
from mtl.doors.micromessage.values import decode_arguments, encode_arguments, parts, read_field
from mtl.doors.peer_messages import DoorRefusal
from mtl.errors import Malformed

ACK, BATCH_ACK, JSON, DOTNET, PUB_SUB = "ack", "batch-ack", "json", "dotnet", "pub-sub"

SUPPORTED = frozenset({ACK, BATCH_ACK, JSON, DOTNET, PUB_SUB})
"""The extensions of version 1.0; names of others begin with x- (MM2-09)."""

MAX_COUNT = "max-count"
_COUNTS = (MAX_COUNT, "count", "batch-max")
"""The document has three names for it. We send the first and accept all."""

DEFAULT_COUNT = 10
"""Default window of batch-ack (MM2-50)."""


@dataclass(frozen=True, slots=True)
class Extension:
    """An extension in a list."""

    name: str
    properties: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.name}:{encode_arguments(self.properties)}" if self.properties else self.name


def batch_ack(count: int) -> Extension:
    """batch-ack with this many messages outstanding at most."""
    return Extension(BATCH_ACK, {MAX_COUNT: str(count)})


def encode_list(extensions: Sequence[Extension]) -> str:
    """Without a semicolon after the last."""
    return ";".join(map(str, extensions))


def decode_list(text: str) -> tuple[Extension, ...]:
    """The extensions of a list. Raises `Malformed`, also for one that is listed twice and for too many."""
    extensions = {}
    for item in parts(text, ";"):
        name, _, properties = item.partition(":")
        extension = Extension(read_field(name), decode_arguments(properties, "=:"))
        if name in extensions:
            raise Malformed(f"extension {name!r} is listed twice")
        extensions[name] = extension
        if len(extensions) > MM2_EXTENSIONS:
            raise Malformed(f"more than {MM2_EXTENSIONS} extensions")
    return tuple(extensions.values())


@dataclass(frozen=True, slots=True)
class ExtensionOffer:
    """The required and the optional extensions of one side."""

    required: tuple[Extension, ...] = ()
    optional: tuple[Extension, ...] = ()

    @classmethod
    def of(cls, handshake: Handshake) -> ExtensionOffer:
        """The offer in a handshake. Raises `Malformed`."""
        return cls(decode_list(handshake.required), decode_list(handshake.optional))

    def handshake(self, identity: str, minor: int = MINOR) -> Handshake:
        """The same as a handshake."""
        return Handshake(identity, encode_list(self.required), encode_list(self.optional), minor=minor)

    @property
    def all(self) -> dict[str, Extension]:
        """Extensions by name, in the order of ids; one that is required and optional is required."""
        return {extension.name: extension for extension in _once((*self.required, *self.optional))}


def _once(extensions: Sequence[Extension]) -> list[Extension]:
    first: dict[str, Extension] = {}
    for extension in extensions:
        first.setdefault(extension.name, extension)
    return list(first.values())


@dataclass(frozen=True, slots=True)
class Agreed:
    """The result of a negotiation. `ids` are extensions' numbers; `window` None: no acknowledgements."""

    ids: Mapping[str, int]
    window: int | None
    ack_id: int | None
    minor: int

    def __contains__(self, name: str) -> bool:
        return name in self.ids


def common_minor(peer: Handshake, *, proposes: bool = False) -> int:
    """The minor version of the lower of both versions (MM2-01, MM2-11). A peer that `proposes` a higher major version
    is answered with ours. Raises `Refused` for another major.
    """
    if proposes and peer.major > MAJOR:
        return MINOR
    if peer.major != MAJOR:
        raise DoorRefusal(400, "version", f"version {peer.major}.{peer.minor}; {MAJOR}.x is expected")
    return min(peer.minor, MINOR)


def check_known(required: Sequence[Extension]) -> None:
    """Raises `Refused` for a required extension that this side does not support (MM2-12, MM2-13)."""
    missing = [extension.name for extension in required if extension.name not in SUPPORTED]
    if missing:
        raise DoorRefusal(501, "extensions", f"the extension {', '.join(missing)} is not supported")


def final(client: ExtensionOffer, server: ExtensionOffer) -> ExtensionOffer:
    """The client's final offer (MM2-23). Raises `Refused` when the server requires an unsupported extension."""
    check_known(server.required)
    required = _once((*client.required, *server.required))
    names = {extension.name for extension in required}
    optional = [
        extension
        for extension in client.optional
        if extension.name in server.all and extension.name in SUPPORTED and extension.name not in names
    ]
    return ExtensionOffer(_settled(required, client, server), _settled(optional, client, server))


def _settled(
    extensions: Sequence[Extension], client: ExtensionOffer, server: ExtensionOffer
) -> tuple[Extension, ...]:
    """The extensions with the smaller of both sides' counts."""
    return tuple(
        batch_ack(_smaller(client, server)) if extension.name == BATCH_ACK else extension
        for extension in extensions
    )


def _smaller(client: ExtensionOffer, server: ExtensionOffer) -> int:
    return min(_count(offer.all[BATCH_ACK]) for offer in (client, server) if BATCH_ACK in offer.all)


def agreed(last: ExtensionOffer, server: ExtensionOffer, minor: int) -> Agreed:
    """The result of the client's final offer. Raises `Refused` when it lacks an extension that the server requires
    (MM2-13), has an unknown one, or a larger window than the server offered.
    """
    names = list(last.all)
    missing = [extension.name for extension in server.required if extension.name not in names]
    if missing:
        raise DoorRefusal(
            400, "extensions", f"{', '.join(missing)} is required here, and not in your last handshake"
        )
    check_known(list(last.all.values()))
    ids = {name: place for place, name in enumerate(names, 1)}
    kind = next((name for name in names if name in {ACK, BATCH_ACK}), None)
    window = None if kind is None else 1 if kind == ACK else _count(last.all[kind])
    offered = server.all.get(BATCH_ACK)
    if kind == BATCH_ACK and offered is not None and window is not None and window > _count(offered):
        raise DoorRefusal(400, "extensions", f"{BATCH_ACK} of {window}; {_count(offered)} was offered")
    return Agreed(ids, window, None if kind is None else ids[kind], minor)


def _count(extension: Extension) -> int:
    """The window in an offer of batch-ack, at most our maximum. Raises `Malformed` if it is invalid."""
    count = next((extension.properties[name] for name in _COUNTS if name in extension.properties), None)
    if count is None:
        return DEFAULT_COUNT
    digits = count.lstrip("0") if count.isascii() and count.isdecimal() else ""
    if not digits:
        raise Malformed(f"{BATCH_ACK} of {count[:20]!r}; a whole number above 0 is expected")
    return min(int(digits[:9]), MM2_WINDOW)
