"""A round: one data directory, active clients, some faults of one kind, and the check at the end."""

from __future__ import annotations

import random
import time
from pathlib import Path

from tests.crash import damages, faults, system
from tests.crash.checker import Finding, check
from tests.crash.faults import Scene
from tests.crash.machine import TRACEBACK, ForkServer, Machine, MachineFailed
from tests.crash.outcomes import SEGMENT_BYTES, Outcome, Spec, ended
from tests.crash.workload import Clients, observe

FAULTS = {**faults.FAULTS, **system.FAULTS}
JOURNALED = {*faults.JOURNALED, *system.JOURNALED}
KINDS = (*FAULTS, *damages.DAMAGES)


def play(spec: Spec, server: ForkServer, place: Path) -> Outcome:
    """Play a round in its own directory, which is kept after a finding."""
    if spec.fault in damages.DAMAGES:
        return damages.play(spec, server, place)
    began, outcome = time.monotonic(), Outcome(spec)
    machine = Machine(server, place, journaled=spec.fault in JOURNALED, segment_bytes=SEGMENT_BYTES)
    clients = Clients(machine.endpoint, spec.seed)
    scene = Scene(machine, clients, random.Random(spec.seed), outcome.findings)
    try:
        machine.start()
        clients.begin()
        for _ in range(spec.count):
            FAULTS[spec.fault](scene)
            outcome.count += 1
        clients.end()
        observed = observe(clients.connection, packed=scene.chance.random() < 0.5)
        outcome.contents = sum(len(kept.contents) for kept in observed.kept.values())
        outcome.findings += check(clients.history, observed)
        outcome.findings += _stop(machine)
    except MachineFailed as error:
        outcome.findings.append(Finding("wrong", str(error)))
    finally:
        clients.close()
        if machine.running:
            machine.kill()
    if TRACEBACK in (log := machine.log_text()):
        at = log.find(TRACEBACK)
        outcome.findings.append(Finding("wrong", f"the broker's log has a traceback:\n{log[at : at + 3000]}"))
    return ended(outcome, place, began)


def _stop(machine: Machine) -> list[Finding]:
    """A clean stop, after which `mtl verify` has no findings."""
    code = machine.stop()
    if code:
        return [Finding("wrong", f"the broker stopped with {code}; {machine.tail()}")]
    code, output = machine.command("verify", str(machine.data))
    return [Finding("wrong", f"mtl verify: {output}")] if code else []
