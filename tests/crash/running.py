"""Rounds in several processes, each with its own fork server."""

from __future__ import annotations

import atexit
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import cache
from multiprocessing import get_context
from pathlib import Path

from tests.crash.machine import ForkServer
from tests.crash.outcomes import Outcome, Spec
from tests.crash.rounds import play
from tests.crash.shim import build

LONG = {
    "kill": 1_000,
    "power cut": 500,
    "full disk": 200,
    "bad disk": 200,
    "limited file": 100,
    "missing inode": 100,
    "slow disk": 100,
    "wrong clock": 100,
    "inspection": 100,
    "suspension": 100,
    "unread log": 50,
    "flipped bit": 2_000,
    "lost file": 200,
    "exchanged file": 200,
    "older file": 200,
    "cut file": 200,
    "damage under load": 100,
}
LIGHT = {
    "kill": 12,
    "power cut": 12,
    "full disk": 4,
    "bad disk": 4,
    "limited file": 1,
    "missing inode": 1,
    "slow disk": 1,
    "wrong clock": 2,
    "inspection": 1,
    "suspension": 2,
    "unread log": 1,
    "flipped bit": 20,
    "lost file": 10,
    "exchanged file": 4,
    "older file": 10,
    "cut file": 2,
    "damage under load": 1,
}

_ROUND = {
    "full disk": 5,
    "bad disk": 5,
    "missing inode": 5,
    "flipped bit": 100,
    "lost file": 50,
    "exchanged file": 50,
    "older file": 50,
    "cut file": 50,
    "damage under load": 20,
}


def in_a_round(fault: str, count: int) -> int:
    """The number of faults of a kind per round: with more the data grows, and a check says less about each."""
    return min(count, _ROUND.get(fault, 10))


def specs(counts: dict[str, int], seed: int) -> Iterator[Spec]:
    """Rounds of the kinds in turns, so that a run that is cut short has some of each."""
    left, number = dict(counts), seed * 100_000
    while any(left.values()):
        for fault, count in left.items():
            if count > 0:
                here = in_a_round(fault, count)
                left[fault] -= here
                number += 1
                yield Spec(fault, here, number)


def played(rounds: list[Spec], place: Path, jobs: int) -> Iterator[Outcome]:
    """Play rounds in `jobs` processes; yields their results."""
    shim = build(place)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(_play, spec, str(shim), str(place)) for spec in rounds]
        for done in as_completed(running):
            yield done.result()


def _play(spec: Spec, shim: str, place: str) -> Outcome:
    return play(spec, _server(shim), Path(place) / f"{spec.fault.replace(' ', '-')}-{spec.seed}")


@cache
def _server(shim: str) -> ForkServer:
    """This process's own."""
    server = ForkServer(Path(shim))
    atexit.register(server.close)
    return server
