"""The requirements for a client, and the findings of the twin about it."""

from __future__ import annotations

from mtl.conformance.report import Finding, Level, Verdict
from mtl.conformance.twin import Twin

REQUIREMENTS = {
    "MTL-05": "A request that is not answered is noticed by a timeout, and asked again on a new socket",
    "MTL-08": "Control bodies are JSON objects",
    "MTL-15": "A request is two frames, the command's name and its body",
    "MTL-21": "Connection.Open comes first on a connection",
    "MTL-22": "Open names the protocol MTL, version 1",
    "MTL-29": "A client logs in whenever it is asked to",
    "MTL-30": "Authorize has a mechanism and a response",
    "MTL-36": "The profile is one of those in the 201",
    "MTL-43": "A client with contents to send has a writing lease",
    "MTL-44": "Reader and Writer have a list of resources, and confirm none or full",
    "MTL-45": "A profile is selected before a lease is asked for",
    "MTL-57": "A data command is two frames",
    "MTL-58": "A header begins with a type of the RFC",
    "MTL-60": "The first data command is a Lease, of a lease that a 202 gave",
    "MTL-61": "A Lease is a command sequence and the lease",
    "MTL-67": "A Summon is a command sequence and a resource",
    "MTL-69": "A Summon is of a resource of the lease",
    "MTL-70": "A resource is not summoned twice without a Dismiss",
    "MTL-73": "A Dismiss is a command sequence and a resource",
    "MTL-75": "A resource that is not summoned is not dismissed",
    "MTL-78": "A Content is a content sequence, a resource that may be empty, and properties",
    "MTL-79": "A Content has a name where the lease has not exactly one resource",
    "MTL-85": 'Contents are confirmed with confirm "full" only',
    "MTL-87": "Confirms and Rejects are of numbers that contents had",
    "MTL-89": "A Confirm is a content sequence and one Boolean, 0 or 1",
    "MTL-94": "A Reject is a content sequence and two Booleans, 0 or 1",
    "MTL-100": "A Ping is answered by a Pong",
}

SHOULD = {"MTL-100"}


def findings(twin: Twin) -> list[Finding]:
    """A finding for each requirement, after the client has ended."""
    wrong = {}
    for one in reversed(twin.wrong):
        wrong[one.requirement] = one
    found = []
    for requirement, text in REQUIREMENTS.items():
        level = Level.SHOULD if requirement in SHOULD else Level.MUST
        if requirement in wrong:
            one = wrong[requirement]
            found.append(Finding(requirement, level, text, Verdict.FAILED, one.reason, one.frames))
        elif requirement in twin.seen:
            found.append(Finding(requirement, level, text, Verdict.MET))
        else:
            reason = "the client did nothing that shows it"
            found.append(Finding(requirement, level, text, Verdict.NOT_SEEN, reason))
    return found
