"""The control flow's frames (RFC 11 "Control Flow", MTL-15..19, 50..52): requests and replies to JSON and back.

Types of requests are in `requests`, of replies in `replies`; this module exports both. A reply with a status of 400 or
above is raised as Refused, except 401 and 402, which are steps of SASL.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from mtl.errors import ContentTooLarge, DataLoss, Fenced, FieldError, Malformed, Refused
from mtl.limits import MAX_CONTROL_FRAME
from mtl.wire.fields import Buffer
from mtl.wire.replies import *
from mtl.wire.replies import Body, Challenged, DataLease, Ok, Ready, Reply, Unauthorized
from mtl.wire.requests import *
from mtl.wire.requests import CONNECTION, REQUESTS, Request
from mtl.wire.visible import printable

# --- the `reason` of a refusal: stable, for programs --------------------------------------------------------

BAD_ARGUMENTS = "bad-arguments"  # 400: a member is missing, of the wrong type, or contradicts another
NOT_OPEN = "not-open"  # 400: no Connection.Open came from this client, or the broker has restarted since
NO_PROFILE = "no-profile"  # 400: Connection.Profile has to come first
UNKNOWN_PROFILE = "unknown-profile"  # 400: not one of the profiles of the 201
NOT_AUTHORIZED = "not-authorized"  # 403: authenticated, but not allowed to
QUOTA = "quota"  # 403: a quota of the user is reached, with `quota`, `limit`, `used`
ALREADY_LEASED = (
    "already-leased"  # 403: from a broker that grants a session one lease of a kind; ours grants more
)
UNKNOWN_VIRTUAL_HOST = "unknown-virtual-host"  # 404
UNKNOWN_RESOURCE = "unknown-resource"  # 404, with the names in `missing`
UNKNOWN_LEASE = "unknown-lease"  # 404: closed, expired or never given
UNKNOWN_CURSOR = "unknown-cursor"  # 404
UNKNOWN_QUEUE = "unknown-queue"  # 404
UNKNOWN_STAGE = "unknown-stage"  # 404: aborted, expired or never made
UNKNOWN_APPLICATION = "unknown-application"  # 404: never committed anything
UNKNOWN_WRITER = "unknown-writer"  # 404: the epoch of a name that is not known (any more)
EXISTS = "exists"  # 409: the resource exists
FENCED = "fenced"  # 409: a newer holder or writer took over; terminal
INCARNATION = "incarnation"  # 409: the resource was deleted and created again
DATA_LOSS = "data-loss"  # 409: requested contents are lost, with `resource`, `first`, `end`
IN_USE = "in-use"  # 409
ROLLED_BACK = "rolled-back"  # 409: the application has committed a later version
OTHER_CONTENTS = "other-contents"  # 409: this version was committed with other contents: `version`, `digest`
UNSEALED = "unsealed"  # 409: a stage still has contents that are not durable
CLOSED = "closed"  # 409: the stage or lease is closed already
TOO_LARGE = "too-large"  # 413
INTERNAL = "internal"  # 500
UNKNOWN_COMMAND = "unknown-command"  # 501
UNSUPPORTED = "unsupported"  # 501: a version, confirmation model or feature
OVERLOADED = "overloaded"  # 503: try again later
READ_ONLY = "read-only"  # 503: the broker is low on disk space and takes no more contents
STORAGE = "storage"  # 503: the disk failed under this resource

STATUS_TEXT = {
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    409: "Conflict",
    413: "Too Large",
    500: "Internal Error",
    501: "Not implemented",
    503: "Unavailable",
}
"""Text for people in a refusal (RFC 11 has 400, 401 and 501); programs use only the number (PROTOCOL.md 2)."""

_REASONS = {
    400: BAD_ARGUMENTS,
    403: NOT_AUTHORIZED,
    404: UNKNOWN_RESOURCE,
    413: TOO_LARGE,
    500: INTERNAL,
    501: UNSUPPORTED,
    503: OVERLOADED,
}
"""The reason of a status, for servers that send none."""

_B = TypeVar("_B", bound=Body)

_ENCODER = msgspec.json.Encoder()
_BODIES: set[type[Body]] = {Unauthorized}
for _request in REQUESTS.values():
    _BODIES |= {_request, *_request.replies.values()}
_DECODERS: dict[type[Body], msgspec.json.Decoder[Any]] = {
    body: msgspec.json.Decoder(body) for body in _BODIES
}
_STATUS = {"status": msgspec.json.Decoder(str)}
_OPTIONAL: dict[type[Body], dict[str, msgspec.json.Decoder[Any]]] = {
    reply: {
        member.encode_name: msgspec.json.Decoder(member.type)
        for member in msgspec.structs.fields(reply)
        if not member.required
    }
    for reply in (Unauthorized, Ready, Challenged, Ok, DataLease)
}
"""All made here, in one thread: two threads that decode the same type for the first time end the process (msgspec
0.22).
"""


# --- requests -----------------------------------------------------------------------------------------------


def encode_request(request: Request) -> list[bytes]:
    """The two frames of a request (MTL-15). ContentTooLarge above MAX_CONTROL_FRAME."""
    body = _ENCODER.encode(request)
    if len(body) > MAX_CONTROL_FRAME:
        raise ContentTooLarge(len(body), MAX_CONTROL_FRAME, "request")
    return [request.command.encode(), body]


def check_request(request: Request) -> None:
    """Raises TypeError for a request with a member of another type, `FieldError` (a ValueError) for a member with a
    value that it cannot have. The constructors of requests do not check types.
    """
    if not isinstance(request, Request):
        raise TypeError(f"a request of mtl.wire.control is needed, not {type(request).__name__}")
    # Octets stay octets: JSON would have them as BASE64, a text.
    plain = msgspec.to_builtins(request, builtin_types=(bytes, bytearray, memoryview))
    try:
        msgspec.convert(plain, type(request))
    except msgspec.ValidationError as error:
        kind = TypeError if ", got `" in str(error) else FieldError
        raise kind(f"{request.command}: {error}") from None


def decode_request(frames: Sequence[Buffer]) -> Request:
    """The request in two frames, without the envelope.

    Malformed (and so dropped, MTL-50, 51) when there are not two frames, or the second is not JSON. Refused with 413
    for a request that is too large, 501 for an unknown command, 400 for a body that is not an object, a member of the
    wrong type, or JSON that cannot be read here (MTL-52). Unknown members are ignored.
    """
    if len(frames) == 2 and len(frames[1]) > MAX_CONTROL_FRAME:
        message = f"a request of {len(frames[1])} octets; {MAX_CONTROL_FRAME} is the limit"
        raise Refused(413, TOO_LARGE, message)
    name, text = _two(frames)
    request = REQUESTS.get(name.lower())
    try:
        if request is None:
            _parse(text)  # a body that is not JSON is dropped, also with an unknown name
            raise Refused(501, UNKNOWN_COMMAND, f"there is no command {name[:80]!r}")
        try:
            return _typed(text, request)
        except msgspec.ValidationError as error:
            _parse(text)
            raise Refused(400, BAD_ARGUMENTS, f"{request.command}: {error}") from error
    except Malformed as error:
        if not _is_json(text):
            raise
        raise Refused(400, BAD_ARGUMENTS, f"{name[:80]!r}: JSON that cannot be read here: {error}") from error


# --- replies ------------------------------------------------------------------------------------------------


def encode_reply(status: int, body: Body | Mapping[str, Any]) -> list[bytes]:
    """The two frames of a reply (MTL-16). A reply above MAX_CONTROL_FRAME is replaced by a 413."""
    if not 200 <= status <= 599:
        raise ValueError(f"{status} is not a status of the control flow")
    text = _ENCODER.encode(body)
    if len(text) > MAX_CONTROL_FRAME:
        message = f"the answer would have {len(text)} octets of {MAX_CONTROL_FRAME}; ask for fewer at a time"
        return encode_refusal(Refused(413, TOO_LARGE, message))
    return [b"%d" % status, text]


def encode_refusal(refused: Refused) -> list[bytes]:
    """The reply of a refusal: status, reason, message, and the members with their names in kebab-case."""
    members = {name.replace("_", "-"): value for name, value in refused.members.items()}
    status = STATUS_TEXT.get(refused.status, "Refused")
    body = {**members, "status": status, "reason": refused.reason, "message": refused.message}
    return encode_reply(refused.status, body)


def decode_reply(frames: Sequence[Buffer], request: type[Request]) -> Reply:
    """The reply to a `request`: one of its success types, or Unauthorized, by the status.

    Raises Refused for any other status from 400 on (Fenced and DataLoss for their reasons), with member names in
    snake_case; Malformed for frames that are not a reply to this request. It names the member that is wrong.

    In replies of the class Connection an optional member of another type than here counts as absent: the RFC allows
    further members, so a server may have one of this name and another meaning. So does any `status`, a text for people.
    """
    code, text = _two(frames)
    if len(code) != 3 or not (code.isascii() and code.isdigit()) or not 200 <= int(code) <= 599:
        raise Malformed(f"a reply with the status {code[:20]!r}")
    status = int(code)
    reply = Unauthorized if status == 401 else request.replies.get(status)
    if reply is None and status < 400:
        raise Malformed(f"{request.command} was answered with {status}, which does not answer it")
    if reply is None:
        raise _refused(status, _parse(text))
    try:
        return _typed(text, reply)
    except msgspec.ValidationError:
        optional = _OPTIONAL.get(reply, _STATUS) if request in CONNECTION else _STATUS
        try:
            return _typed(_without_odd(text, optional), reply)
        except msgspec.ValidationError as error:
            raise Malformed(f"{status} to {request.command}: {error}") from error


def _without_odd(text: str, optional: Mapping[str, msgspec.json.Decoder[Any]]) -> str:
    """`text` without the members of `optional` that have another type."""
    members = _parse(text)
    if not isinstance(members, dict):
        return text
    kept = {
        name: value for name, value in members.items() if name not in optional or _fits(optional[name], value)
    }
    return _ENCODER.encode(kept).decode()


def _fits(decoder: msgspec.json.Decoder[Any], value: object) -> bool:
    try:
        decoder.decode(_ENCODER.encode(value))
    except msgspec.ValidationError:
        return False
    return True


def _refused(status: int, body: object) -> Refused:
    if not isinstance(body, dict):
        raise Malformed(f"a reply {status} whose body is not an object")
    members = {name.replace("-", "_"): value for name, value in body.items()}
    text = _text(members.pop("status", None), "")
    reason = _text(members.pop("reason", None), _REASONS.get(status, "refused"))
    message = _text(members.pop("message", None), text)
    members.pop("self", None)  # the one name that Refused cannot take as a member
    reason, message = printable(reason), printable(message, keep="\n")  # a terminal shows the exception
    if (status, reason) == (409, FENCED):
        return Fenced(message, **members)
    if (status, reason) == (409, DATA_LOSS):
        resource, first, end = members.get("resource"), members.get("first"), members.get("end")
        if isinstance(resource, str) and type(first) is int and type(end) is int:
            resume = members.get("from")
            return DataLoss(resource, first, end, message, resume=resume if type(resume) is int else None)
    return Refused(status, reason, message, **members)


def _text(value: object, default: str) -> str:
    return value if isinstance(value, str) else default


# --- frames and JSON ----------------------------------------------------------------------------------------


def _two(frames: Sequence[Buffer]) -> tuple[str, str]:
    """Both frames as text."""
    if len(frames) != 2:
        raise Malformed(f"{len(frames)} frames instead of two")
    if len(frames[1]) > MAX_CONTROL_FRAME:
        raise Malformed(f"a body of {len(frames[1])} octets")
    try:
        return str(frames[0], "utf-8"), str(frames[1], "utf-8")
    except UnicodeDecodeError as error:
        raise Malformed("a frame is not UTF-8") from error


def _typed(text: str, kind: type[_B]) -> _B:
    """`text` decoded as a `kind`. Malformed when it is not JSON, msgspec.ValidationError for JSON of another kind."""
    try:
        body: _B = _DECODERS[kind].decode(text)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed(f"a body is not JSON, or nested too deep: {error}") from error
    return body


def _parse(text: str) -> object:
    """Any JSON, decoded; None for a value that no type can hold (1e999). Malformed when it is not JSON."""
    try:
        return msgspec.json.decode(text)
    except msgspec.ValidationError:
        return None
    except (msgspec.DecodeError, RecursionError) as error:
        raise Malformed(f"a body is not JSON, or nested too deep: {error}") from error


def _is_json(text: str) -> bool:
    """Whether a text that msgspec cannot read is JSON by its grammar, as half of a surrogate pair is. Text that is
    nested too deep for both decoders counts as JSON, since its end was not read.
    """
    try:
        json.loads(text, parse_int=len, parse_float=len, parse_constant=_no_constant)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
