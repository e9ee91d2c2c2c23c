"""Runs all checks of a server, one after the other, each with sockets of its own."""

from __future__ import annotations

from collections.abc import Iterator

from mtl.conformance import control, data
from mtl.conformance.peer import TEST, Probe, Target
from mtl.conformance.report import CheckResult, NotSeen, run


def fetch_profiles(target: Target) -> list[str]:
    """The profiles in the server's 201. Raises `Failed` or `NotSeen` if the log-in fails."""
    peer = Probe(target)
    try:
        body = peer.requester().log_in().body
    finally:
        peer.close()
    profiles = body.get("profiles")
    if not isinstance(profiles, list) or not profiles:
        raise NotSeen(f"the 201 names no profiles: {body}")
    return [str(name) for name in profiles]


def choose_profile(profiles: list[str]) -> str:
    """The default profile to check: `test`, which the RFC defines, or the first."""
    return next((name for name in profiles if name.lower() == TEST), profiles[0])


def check_server(target: Target) -> Iterator[CheckResult]:
    """A finding for each check that applies to the profile."""
    for check in (*control.CHECKS.all, *data.CHECKS.all):
        if check.concerns(target.profile.lower()):
            peer = Probe(target)
            try:
                yield run(check, peer, peer.frames)
            finally:
                peer.close()
