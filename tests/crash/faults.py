"""Faults of a machine, one function for each kind. Each returns when the broker runs again."""

from __future__ import annotations

import errno
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mtl.errors import MtlError
from tests.crash.checker import Finding
from tests.crash.image import Survives
from tests.crash.machine import Machine, MachineFailed, wait_until
from tests.crash.shim import EVERYTHING, ROOM, Kind
from tests.crash.workload import Clients

PLACES = ("", "", "resources/", "stages/", "broker.db", ".segment", ".index", "manifest")
"""Patterns of the files whose operations fail: all files, or those with this in their names."""

SERVING_S = 60.0
"""Seconds within which a broker has to serve everything again after its disk works again: a second or two, and more
where the machine has much other work.
"""

WRITING_S = 3.0
"""Seconds for which a fault waits for clients to write again. A timeout is no error here: the end of a round detects
it.
"""


@dataclass
class Scene:
    """A running round."""

    machine: Machine
    clients: Clients
    chance: random.Random
    findings: list[Finding] = field(default_factory=list)


def kill(scene: Scene) -> None:
    """SIGKILL at a random moment, or before a chosen operation of the disk; sometimes during the start."""
    _die(scene)
    _start(scene)


def cut(scene: Scene) -> None:
    """SIGKILL; all, some or no unsynced octets survive."""
    _die(scene)
    _lose(scene)
    _start(scene)


def full_disk(scene: Scene) -> None:
    """From some operation on the disk is full; later it has free space again, which must suffice for recovery."""
    fail(scene, ROOM, errno.ENOSPC, 1_000_000)
    expect_service(scene, "there is room again")


def bad_disk(scene: Scene) -> None:
    """Some operations fail, later all work again. A resource may have stopped until the broker starts again."""
    kinds = scene.chance.choice(
        (Kind.SYNC, Kind.SYNC, Kind.WRITE, Kind.WRITE | Kind.SYNC, Kind.READ, ROOM, EVERYTHING)
    )
    fail(scene, kinds, errno.EIO, scene.chance.choice((1, 1, 2, 5, 50)))
    if stopped_after(scene, 1.0):
        restart(scene)
        expect_service(scene, "the disk works, and the broker has started again")


# --- dying and starting -------------------------------------------------------------------------------------


def _die(scene: Scene) -> None:
    machine, chance = scene.machine, scene.chance
    if chance.random() < 0.6:
        control = machine.control
        control.kill(control["operations"] + int(10 ** chance.uniform(0, 2.3)), torn=chance.random() < 0.5)
        machine.await_end(0.5)
    else:
        time.sleep(chance.uniform(0.0, 0.3))
    machine.kill()


def _lose(scene: Scene) -> None:
    survives: Survives = scene.chance.choice(("none", "some", "some", "all"))
    scene.machine.lose(survives, scene.chance)


def _start(scene: Scene) -> None:
    """Restart the broker. Sometimes the next fault occurs during the start, or before any client reconnects."""
    before = scene.clients.confirmed
    scene.machine.launch()
    soon = scene.chance.random()
    if soon < 0.2:
        return
    if not scene.machine.await_ready():
        raise MachineFailed(f"the broker did not start again; {scene.machine.tail()}")
    if soon > 0.4:
        wait_until(lambda: scene.clients.confirmed > before, WRITING_S)


def restart(scene: Scene) -> None:
    """Kill the broker and start it again."""
    scene.machine.kill()
    scene.machine.start()


# --- the disk -----------------------------------------------------------------------------------------------


def fail(scene: Scene, kinds: Kind, error: int, count: int) -> None:
    """Make the disk fail for a while. Sometimes the broker is killed, loses power or is stopped in that time, and has
    to start on the failing disk.
    """
    machine, chance = scene.machine, scene.chance
    after, path = int(10 ** chance.uniform(0, 2)), chance.choice(PLACES)
    machine.control.fail(kinds, error, after=after, count=count, path=path)
    time.sleep(chance.choice((0.05, 0.1, 0.3, 0.6)))
    end = chance.choice((None, None, None, None, "kill", "cut", "stop"))
    if end is not None:
        if end == "stop":
            code = machine.stop()
            if code < 0:
                scene.findings.append(
                    Finding("wrong", f"after a request to stop the broker ended with {code}")
                )
        else:
            machine.kill()
        if end == "cut":
            _lose(scene)
        machine.launch()
        if chance.random() < 0.5:
            machine.control.fail(kinds, error, after=chance.choice((0, 3, 30)), count=count, path=path)
        if not machine.await_ready():  # no broker can start on this disk
            machine.ended()
            machine.start()
    machine.control.work()


def stopped(scene: Scene) -> list[str]:
    """The resources that take no contents, and why."""
    try:
        listed = scene.clients.connection.list_resources()
    except MtlError as problem:
        return [f"nothing is listed: {problem}"]
    return [
        f"{description.resource}: {description.trouble}"
        for description in listed
        if description.state != "serving"
    ]


def stopped_after(scene: Scene, seconds: float) -> list[str]:
    """What is still stopped after this time, as it was seen last; nothing as soon as everything is served."""
    reasons: list[str] = []

    def serves() -> bool:
        reasons[:] = stopped(scene)
        return not reasons

    wait_until(serves, seconds, step=0.05)
    return reasons


def expect_service(scene: Scene, why: str) -> None:
    """Wait until everything is served. If that takes longer than SERVING_S it is a finding, and the broker is started
    again.
    """
    reasons = stopped_after(scene, SERVING_S)
    if reasons:
        scene.findings.append(Finding("wrong", f"{why}, and this is stopped still: {'; '.join(reasons)}"))
        restart(scene)


FAULTS: dict[str, Callable[[Scene], None]] = {
    "kill": kill,
    "power cut": cut,
    "full disk": full_disk,
    "bad disk": bad_disk,
}
JOURNALED = {"power cut", "full disk", "bad disk"}
