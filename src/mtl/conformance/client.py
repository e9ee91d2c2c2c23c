"""The requirements for a client, and the findings of the twin about it and its process."""

from __future__ import annotations

from mtl.conformance.report import CheckResult, CheckVerdict, RequirementLevel
from mtl.conformance.twin import Twin

REQUIREMENTS = {
    "MTL-05": "A client detects a missing reply by a timeout (it opens a session on a new socket)",
    "MTL-08": "Control bodies are JSON objects",
    "MTL-15": "A request has two frames, the name of the command and the body",
    "MTL-21": "Connection.Open is the first request of a connection",
    "MTL-22": "Open names the protocol MTL, version 1",
    "MTL-29": "A client can authenticate at any time: it does after every 401",
    "MTL-30": "Authorize has a mechanism and a response",
    "MTL-36": "The selected profile is one of the profiles in the 201",
    "MTL-43": "A client that sends contents has a lease for writing",
    "MTL-44": 'Reader and Writer have a list of resources, and confirm "none" or "full"',
    "MTL-45": "A client selects a profile before it requests a lease",
    "MTL-57": "A data command has two frames",
    "MTL-58": "A header begins with a command type of the RFC",
    "MTL-60": "The first data command is a Lease with a lease from a 202",
    "MTL-61": "A Lease has a command sequence and the lease",
    "MTL-67": "A Summon has a command sequence and a resource",
    "MTL-69": "A Summon names a resource of the lease",
    "MTL-70": "A client does not summon a resource twice without a Dismiss in between",
    "MTL-73": "A Dismiss has a command sequence and a resource",
    "MTL-74": "A Dismiss names a resource of the lease",
    "MTL-75": "A client does not dismiss a resource twice without a Summon in between",
    "MTL-78": "A Content has a content sequence, a resource (may be empty), and properties",
    "MTL-79": "A Content names its resource unless the lease has exactly one",
    "MTL-85": 'A client confirms contents only with confirm "full"',
    "MTL-87": "Confirms and Rejects have the numbers of received contents",
    "MTL-89": "A Confirm has a content sequence and one Boolean, 0 or 1",
    "MTL-94": "A Reject has a content sequence and two Booleans, 0 or 1",
    "MTL-100": "A Ping is answered by a Pong",
}

SHOULD = {"MTL-100"}


def exit_finding(code: int | None) -> CheckResult:
    """The finding about the exit code of the client's process; None if it did not end by itself."""
    if code is None:
        verdict, reason = CheckVerdict.NOT_SEEN, "it did not end within the time"
    elif code == 0:
        verdict, reason = CheckVerdict.MET, ""
    else:
        verdict = CheckVerdict.FAILED
        reason = f"its exit code is {code}" if code > 0 else f"signal {-code} ended it"
    text = "The client's command ends with exit code 0"
    return CheckResult("exit", RequirementLevel.MUST, text, verdict, reason)


def findings(twin: Twin) -> list[CheckResult]:
    """A finding for each requirement, after the client has ended."""
    wrong = {}
    for violation in reversed(twin.wrong):
        wrong[violation.requirement] = violation
    results = []
    for requirement, text in REQUIREMENTS.items():
        level = RequirementLevel.SHOULD if requirement in SHOULD else RequirementLevel.MUST
        if requirement in wrong:
            violation = wrong[requirement]
            results.append(
                CheckResult(requirement, level, text, CheckVerdict.FAILED, violation.reason, violation.frames)
            )
        elif requirement in twin.exercised:
            results.append(CheckResult(requirement, level, text, CheckVerdict.MET))
        else:
            reason = "the client did not use this part of the protocol"
            results.append(CheckResult(requirement, level, text, CheckVerdict.NOT_SEEN, reason))
    return results
