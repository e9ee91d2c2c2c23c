"""Checks of a server's control flow."""

from __future__ import annotations

from typing import Any

from mtl.conformance.peer import SILENCE_S, TEST, Probe, ProbeReply, expect, parse_reply
from mtl.conformance.report import Checks

CHECKS: Checks[Probe] = Checks()
must, should = CHECKS.must, CHECKS.should

OPEN = b'{"protocol":{"name":"MTL","version":1}}'


def _refused(reply: ProbeReply, *codes: int) -> None:
    expected = " or ".join(map(str, codes)) or "a status from 400 on"
    expect(reply.code in codes if codes else reply.code >= 400, f"expected {expected}, received {reply.code}")


@must(
    "MTL-26",
    "A session begins with 201, after a log-in if required: status Ready and the names of the profiles",
)
def ready(peer: Probe) -> None:
    body = peer.requester().log_in().body
    expect(body.get("status") == "Ready", f"the status is {body.get('status')!r}")
    profiles = body.get("profiles")
    named = isinstance(profiles, list) and bool(profiles) and all(isinstance(name, str) for name in profiles)
    expect(named, f"the profiles are {profiles!r}")


@must("MTL-19", "Names of commands are case-insensitive")
def any_case(peer: Probe) -> None:
    for name in ("CONNECTION.OPEN", "connection.open", "cOnNeCtIoN.oPeN"):
        requester = peer.requester()
        reply = requester.ask(name, requester.open_body())
        expect(reply.code in {201, 401}, f"{name} is answered by {reply.code}")


@must("MTL-20", "The reply begins with the envelope of its request")
def envelope(peer: Probe) -> None:
    dealer = peer.dealer()
    peer.send(dealer, [b"mark", b"", b"Connection.Open", OPEN])
    frames = peer.receive(dealer, peer.target.patience_s) or []
    expect(frames[:2] == [b"mark", b""], f"the reply begins with {frames[:2]}")
    parse_reply(frames[2:])


@must("MTL-21", "A request before Connection.Open is refused")
def open_first(peer: Probe) -> None:
    _refused(peer.requester().ask("Connection.Profile", {"profile": peer.target.profile}))


@must("MTL-37", "Selecting a profile of the 201 is answered by 200")
def profile(peer: Probe) -> None:
    requester = peer.requester()
    requester.log_in()
    reply = requester.ask("Connection.Profile", {"profile": peer.target.profile})
    expect(reply.code == 200, f"the reply has {reply.code}")


@must("MTL-39", "Names of profiles are case-insensitive")
def profile_case(peer: Probe) -> None:
    requester = peer.requester()
    requester.log_in()
    for name in (peer.target.profile.upper(), peer.target.profile.capitalize()):
        reply = requester.ask("Connection.Profile", {"profile": name})
        expect(reply.code == 200, f"{name} is answered by {reply.code}")


@must("MTL-38", "An unknown profile is answered by 400")
def no_profile(peer: Probe) -> None:
    requester = peer.requester()
    requester.log_in()
    _refused(requester.ask("Connection.Profile", {"profile": "no such profile"}), 400)


@must("MTL-45", "A request for a lease is refused before a profile is selected")
def profile_first(peer: Probe) -> None:
    requester = peer.requester()
    requester.log_in()
    for kind in ("Reader", "Writer"):
        _refused(requester.ask(f"Connection.{kind}", {"resources": [], "confirm": "none"}))


@must("MTL-48", "A lease is granted by 202: status Data Lease, a port number, and the lease as a string")
def lease(peer: Probe) -> None:
    session = peer.session()
    resource = peer.resource(session)
    for kind in ("Reader", "Writer"):
        reply = session.ask(f"Connection.{kind}", {"resources": [resource], "confirm": "none"})
        expect(reply.code == 202, f"a {kind} is answered by {reply.code}")
        body = reply.body
        expect(body.get("status") == "Data Lease", f"the status is {body.get('status')!r}")
        port, token = body.get("port"), body.get("lease")
        expect(type(port) is int and 0 <= port < 65_536, f"the port is {port!r}")
        expect(isinstance(token, str) and len(token.encode()) <= 255, f"the lease is {token!r}")


@must("MTL-46", "An empty list of resources means any and all resources")
def any_and_all(peer: Probe) -> None:
    session = peer.session()
    kinds = ("Reader", "Writer") if peer.target.profile == TEST else ("Writer",)
    for kind in kinds:
        reply = session.ask(f"Connection.{kind}", {"resources": [], "confirm": "none"})
        expect(reply.code == 202, f"a {kind} is answered by {reply.code}")


@must("MTL-49", "A confirmation model that the profile does not support gets 501")
def no_confirmation(peer: Probe) -> None:
    session = peer.session()
    confirm = "full" if peer.target.profile == TEST else "sometimes"
    for kind in ("Reader", "Writer"):
        body = {"resources": [peer.resource(session)], "confirm": confirm}
        _refused(session.ask(f"Connection.{kind}", body), 501)


@must("MTL-52", "A well-formed but invalid request gets an error reply")
def invalid(peer: Probe) -> None:
    session = peer.session()
    wrong: list[tuple[str, Any]] = [
        ("No.Such", {}),
        ("", {}),
        ("Connection.Profile", {"profile": 7}),
        ("Connection.Reader", {"resources": "resource", "confirm": "none"}),
        ("Connection.Profile", {"profile": "\ud800"}),
    ]
    for name, body in wrong:
        _refused(session.ask(name, body))


@should("MTL-09", "Unknown members of a body are ignored")
def unknown_members(peer: Probe) -> None:
    requester = peer.requester()
    requester.log_in()
    reply = requester.ask("Connection.Profile", {"profile": peer.target.profile, "x-later": [1, {"a": None}]})
    expect(reply.code == 200, f"the reply has {reply.code}")


def _dropped(peer: Probe, *messages: list[bytes]) -> None:
    """Check that each message gets no answer, and that a valid request after it does."""
    for frames in messages:
        dealer = peer.dealer()
        peer.send(dealer, [b"", *frames])
        answer = peer.receive(dealer, SILENCE_S)
        expect(answer is None, "an ill-formed request was answered")
        peer.send(dealer, [b"", b"Connection.Open", OPEN])
        expect(
            peer.receive(dealer, peer.target.patience_s) is not None,
            "the valid request after it was not answered",
        )


@should("MTL-50", "A request with the wrong number of frames gets no reply")
def frames(peer: Probe) -> None:
    _dropped(peer, [b"Connection.Open"], [b"Connection.Open", OPEN, b"more"])


@should("MTL-51", "A request whose body is not JSON gets no reply")
def no_json(peer: Probe) -> None:
    _dropped(peer, [b"Connection.Open", b"no JSON"], [b"Connection.Open", b'{"protocol":'], [b"No.Such", b""])


@must("MTL-04", "A request gets exactly one reply")
def one_reply(peer: Probe) -> None:
    dealer = peer.dealer()
    peer.send(dealer, [b"", b"Connection.Open", OPEN])
    expect(peer.receive(dealer, peer.target.patience_s) is not None, "no reply came")
    expect(peer.receive(dealer, SILENCE_S) is None, "a second reply came")
