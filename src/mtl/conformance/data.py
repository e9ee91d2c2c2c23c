"""Checks of a server's data flow."""

from __future__ import annotations

import struct
import time

from mtl.conformance import frames as rfc
from mtl.conformance.peer import SILENCE_S, TEST, Probe, ProbeFlow, Requester, expect
from mtl.conformance.report import Checks, Failed, NotSeen

CHECKS: Checks[Probe] = Checks()
must, should = CHECKS.must, CHECKS.should

BODY = b"\0\xff body"


def _reader(session: Requester, resource: str, confirm: str = "none") -> ProbeFlow:
    """A reader that has summoned its resource."""
    flow = session.flow("Reader", [resource], confirm)
    flow.summon(resource)
    return flow


# --- leases -------------------------------------------------------------------------------------------------


@must("MTL-62", "A Lease gets a Response with its command sequence")
def lease(peer: Probe) -> None:
    session = peer.session()
    granted = session.lease("Writer", [peer.resource(session)], "none")
    flow = session.connect(granted)
    number = flow.ask(rfc.LEASE, str(granted["lease"]))
    response = flow.expect_command(rfc.RESPONSE)
    expect(response.number == number, f"the Response has the number {response.number}, not {number}")


@must("MTL-64", "The Response to a Lease has 200, or 403 for an unknown lease")
def forbidden(peer: Probe) -> None:
    session = peer.session()
    granted = session.lease("Writer", [peer.resource(session)], "none")
    for token, code in ((str(granted["lease"]), b"200"), ("no such lease", b"403")):
        flow = session.connect(granted)
        flow.ask(rfc.LEASE, token)
        response = flow.expect_command(rfc.RESPONSE)
        expect(response.body == code, f"the Response to {token!r} has {response.body!r}, not {code!r}")


@must("MTL-65", "A client may send commands before the Responses to earlier commands")
def pipelined(peer: Probe) -> None:
    session = peer.session()
    resource = peer.resource(session)
    granted = session.lease("Reader", [resource], "none")
    flow = session.connect(granted)
    numbers = {flow.ask(rfc.LEASE, str(granted["lease"])), flow.ask(rfc.SUMMON, resource)}
    answered = {flow.expect_command(rfc.RESPONSE, lambda r: r.body == b"200").number for _ in numbers}
    expect(answered == numbers, f"the Responses have the numbers {sorted(answered)}, not {sorted(numbers)}")


# --- summoning ----------------------------------------------------------------------------------------------


@must("MTL-71", "A Summon gets a Response, 200 or 400; 400 for a resource outside of the lease")
def summon(peer: Probe) -> None:
    session = peer.session()
    resource = peer.resource(session)
    flow = session.flow("Reader", [resource], "none")
    flow.expect_response(flow.ask(rfc.SUMMON, "no such resource"), b"400")
    flow.summon(resource)


@must("MTL-70", "A second Summon of the same resource, without a Dismiss in between, gets 400")
def summoned_twice(peer: Probe) -> None:
    session = peer.session()
    resource = peer.resource(session)
    flow = _reader(session, resource)
    flow.expect_response(flow.ask(rfc.SUMMON, resource), b"400")


@must("MTL-76", "A Dismiss gets a Response, 200 or 400")
def dismiss(peer: Probe) -> None:
    session = peer.session()
    resource = peer.resource(session)
    flow = _reader(session, resource)
    flow.expect_response(flow.ask(rfc.DISMISS, resource), b"200")


@must("MTL-75", "A second Dismiss of the same resource, without a Summon in between, gets 400")
def dismissed_twice(peer: Probe) -> None:
    session = peer.session()
    resource = peer.resource(session)
    flow = _reader(session, resource)
    flow.expect_response(flow.ask(rfc.DISMISS, resource), b"200")
    number = flow.ask(rfc.DISMISS, resource)
    response = flow.next()
    while response is not None and response.kind == rfc.CONTENT:  # a finding of MTL-82
        response = flow.next()
    expect(
        response is not None
        and (response.kind, response.number, response.body) == (rfc.RESPONSE, number, b"400"),
        f"expected Response {number} with 400, received {response or 'nothing'}",
    )


@must("MTL-81", "No content comes before the Response to the Summon")
def response_first(peer: Probe) -> None:
    session = peer.session()
    resource = peer.resource(session)
    writer = session.flow("Writer", [resource], "none")
    flow = session.flow("Reader", [resource], "none")
    writer.send(rfc.content(1, resource), BODY)
    flow.expect_silence("no resource is summoned")
    number = flow.ask(rfc.SUMMON, resource)
    writer.send(rfc.content(2, resource), BODY)
    flow.expect_response(number, b"200")


@must("MTL-82", "No content comes after the 200 to a Dismiss")
def no_content_after(peer: Probe) -> None:
    session = peer.session()
    resource = peer.resource(session)
    writer = session.flow("Writer", [resource], "none")
    flow = _reader(session, resource)
    flow.expect_response(flow.ask(rfc.DISMISS, resource), b"200")
    writer.send(rfc.content(1, resource), BODY)
    flow.expect_silence("the resource is dismissed")


# --- contents -----------------------------------------------------------------------------------------------


PROPERTIES = {
    "flag": b"t\1",
    "number": b"l" + (-7).to_bytes(8, "big", signed=True),
    "ratio": b"d" + struct.pack(">d", 0.5),
    "text": b"S" + struct.pack(">I", 5) + "Z\xfcge".encode(),
    "octets": b"x" + struct.pack(">I", 2) + b"\0\xff",
}
BODIES = (BODY, b"", bytes(range(256)) * 512)


@must(
    "MTL-80",
    "Contents have their resource, a well-formed header, and unchanged properties and bodies, in order",
)
def content(peer: Probe) -> None:
    session = peer.session()
    resource = peer.resource(session)
    reader = _reader(session, resource)
    writer = session.flow("Writer", [resource], "none")
    named = b"".join(rfc.short(name) + value for name, value in PROPERTIES.items())
    for number, body in enumerate(BODIES, 1):
        writer.send(rfc.content(number, resource, struct.pack(">I", len(named)) + named), body)
    for body in BODIES:
        content = reader.expect_command(rfc.CONTENT)
        expect(
            content.body == body, f"a body of {len(body)} octets has {len(content.body)} now, or other ones"
        )
        expect(content.name in {"", resource}, f"the content has the resource {content.name!r}")
        _expect_properties(content)


def _expect_properties(content: rfc.DataCommand) -> None:
    """Check that a content has PROPERTIES; the server may have added others."""
    expect(bool(content.rest), "the header ends before the name of the resource")
    try:
        properties = rfc.entries(content.rest[1 + content.rest[0] :])
    except ValueError as error:
        raise Failed(str(error)) from error
    for name, value in PROPERTIES.items():
        received = rfc.octets(properties[name]) if name in properties else "missing"
        expect(
            properties.get(name) == value,
            f"the property {name!r} is {received}; {rfc.octets(value)} was sent",
        )


@must("MTL-83", "A content for a lease of all resources has the name of its resource", TEST)
def named(peer: Probe) -> None:
    session = peer.session()
    reader = session.flow("Reader", [], "none")
    reader.summon("resource")
    session.flow("Writer", ["resource"], "none").send(rfc.content(1, "resource"), BODY)
    content = reader.expect_command(rfc.CONTENT, lambda content: content.body == BODY)
    expect(content.name == "resource", f"the content has the resource {content.name!r}")


@must("MTL-78", "A writer whose lease has one resource may omit the name")
def no_name(peer: Probe) -> None:
    session = peer.session()
    resource = peer.resource(session)
    reader = _reader(session, resource)
    session.flow("Writer", [resource], "none").send(rfc.content(1, ""), BODY)
    reader.expect_command(rfc.CONTENT, lambda content: content.body == BODY)


@must("MTL-114", "There is exactly one resource, named resource", TEST)
def one_resource(peer: Probe) -> None:
    session = peer.session()
    flow = session.flow("Reader", [], "none")
    flow.expect_response(flow.ask(rfc.SUMMON, "another"), b"400")
    flow.summon("resource")


@must("MTL-115", "Contents are never confirmed", TEST)
def never_confirmed(peer: Probe) -> None:
    session = peer.session()
    writer = session.flow("Writer", ["resource"], "none")
    writer.send(rfc.content(1, "resource"), BODY)
    writer.expect_silence("this profile has no confirmation")


@must("MTL-116", "Contents are copied from all writers to all readers", TEST, "log")
def fan_out(peer: Probe) -> None:
    session = peer.session()
    resource = peer.resource(session)
    readers = [_reader(peer.session(), resource) for _ in range(2)]
    writers = [peer.session().flow("Writer", [resource], "none") for _ in range(2)]
    for number, writer in enumerate(writers):
        writer.send(rfc.content(1, resource), b"%d" % number)
    for place, reader in enumerate(readers):
        contents = [reader.next() for _ in writers]
        bodies = sorted(x.body for x in contents if x is not None and x.kind == rfc.CONTENT)
        expect(bodies == [b"0", b"1"], f"reader {place} received {bodies}, not one content of each writer")


# --- confirmation -------------------------------------------------------------------------------------------


@must("MTL-85", 'No content is confirmed with confirm "none"')
def unconfirmed(peer: Probe) -> None:
    session = peer.session()
    resource = peer.resource(session)
    writer = session.flow("Writer", [resource], "none")
    for number in (1, 2):
        writer.send(rfc.content(number, resource), BODY)
    writer.expect_silence('the lease has confirm "none"')


@must("MTL-86", 'Every content is confirmed or rejected with confirm "full"')
def confirmed(peer: Probe) -> None:
    session = peer.session()
    peer.require_confirmation()
    resource = peer.resource(session)
    writer = session.flow("Writer", [resource], "full")
    open_ = {1, 2, 3}
    for number in sorted(open_):
        writer.send(rfc.content(number, resource), BODY)
    while open_:
        command = writer.next()
        if command is None or command.kind not in {rfc.CONFIRM, rfc.REJECT}:
            raise Failed(f"expected a Confirm or Reject for {sorted(open_)}, received {command or 'nothing'}")
        fields = 1 if command.kind == rfc.CONFIRM else 2
        expect(
            len(command.rest) == fields and set(command.rest) <= {0, 1},
            f"{command} has the fields {rfc.octets(command.rest)}",
        )
        open_ -= {n for n in open_ if n == command.number or (command.rest[0] and n <= command.number)}


@must("MTL-93", "Confirms and Rejects get no answer, valid or not (MTL-92, 97, 98)")
def settled(peer: Probe) -> None:
    session = peer.session()
    peer.require_confirmation()
    resource = peer.resource(session)
    reader = _reader(session, resource, "full")
    session.flow("Writer", [resource], "none").send(rfc.content(1, resource), BODY)
    number = reader.expect_command(rfc.CONTENT).number
    for kind, fields in ((rfc.CONFIRM, b"\1"), (rfc.CONFIRM, b"\0"), (rfc.REJECT, b"\0\0")):
        reader.send(rfc.numbered(kind, number, fields))
        reader.send(rfc.numbered(kind, number + 100, fields))
    reader.expect_silence("Confirms and Rejects get no answer")


@must("MTL-96", "A content that is rejected with recycle is delivered again", "queue")
def recycled(peer: Probe) -> None:
    session = peer.session()
    resource = peer.resource(session)
    reader = _reader(session, resource, "full")
    session.flow("Writer", [resource], "none").send(rfc.content(1, resource), BODY)
    number = reader.expect_command(rfc.CONTENT).number
    reader.send(rfc.numbered(rfc.REJECT, number, b"\0\1"))
    again = reader.expect_command(rfc.CONTENT, lambda content: content.body == BODY)
    reader.send(rfc.numbered(rfc.CONFIRM, again.number, b"\0"))


# --- heartbeats and errors ----------------------------------------------------------------------------------


@should("MTL-100", "A Ping is answered by a Pong")
def ping(peer: Probe) -> None:
    session = peer.session()
    flow = session.flow("Writer", [peer.resource(session)], "none")
    flow.send(bytes([rfc.PING]))
    pong = flow.expect_command(rfc.PONG)
    expect(not pong.rest, f"the Pong has the fields {rfc.octets(pong.rest)}")


@should("MTL-102", "The server sends a Ping on a silent connection")
def pinged(peer: Probe) -> None:
    session = peer.session()
    flow = session.flow("Writer", [peer.resource(session)], "none")
    until = time.monotonic() + 2 * peer.target.patience_s
    while time.monotonic() < until:
        frames = peer.receive(flow.socket, until - time.monotonic())
        if frames is not None and frames[0] == bytes([rfc.PING]):
            return
    raise Failed(f"no Ping within {2 * peer.target.patience_s} s")


ILL_FORMED = (
    [b"\x05"],
    [b"\x05", b"", b""],
    [b"", b""],
    [b"\xff" + bytes(8), b""],
    [rfc.numbered(rfc.CONFIRM, 1, b"\2"), b""],
    [rfc.numbered(rfc.CONFIRM, 1), b""],
    [rfc.numbered(rfc.SUMMON, 1, b"\x09short"), b""],
)


@should("MTL-111", "Ill-formed data commands get no answer (MTL-110) and do not end the connection")
def ill_formed(peer: Probe) -> None:
    session = peer.session()
    resource = peer.resource(session)
    flow = session.flow("Reader", [resource], "none")
    for frames in ILL_FORMED:
        peer.send(flow.socket, frames)
    flow.expect_silence("the commands are ill-formed")
    flow.summon(resource)


@must("MTL-112", "An invalid content gets an error reply, a Reject", TEST)
def invalid(peer: Probe) -> None:
    session = peer.session()
    writer = session.flow("Writer", [], "none")
    writer.send(rfc.content(9, "another"), BODY)
    reject = writer.next(SILENCE_S * 3)
    if reject is None:
        raise NotSeen("the content was dropped; the RFC leaves the kind of the reply open")
    expect(reject.kind == rfc.REJECT and reject.number == 9, f"expected Reject 9, received {reject}")


@must("MTL-79", "A content without a name is invalid where the lease has several resources", "log", "queue")
def name_required(peer: Probe) -> None:
    session = peer.session()
    peer.require_confirmation()
    writer = session.flow("Writer", [], "full")
    writer.send(rfc.content(1, ""), BODY)
    writer.expect_command(rfc.REJECT, lambda reject: reject.number == 1)
