"""Quotas: a user that uses all available resources, and another one that has to be served."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

import mtl
from mtl.client.waiter import Waiter
from mtl.client.writer import Writer
from mtl.errors import Refused
from mtl.testing import RunningBroker
from mtl.wire import control
from tests.hostile.harness import PASSWORD, scenario
from tests.hostile.scenarios.rights import PATIENCE_S

QUOTAS = """
[quotas]
leases = 50
waits = 20
waiting-names = 2500
resources = 30
cursors = 30
writer-names = 100
stages = 40
stage-bytes = 500000
stored-bytes = 1000000
"""


def until_refused(work: Callable[[int], object], limit: int) -> Refused:
    """The refusal after `limit` successful calls."""
    for number in range(limit):
        work(number)
    with pytest.raises(Refused) as caught:
        work(limit)
    return caught.value


def outcome(waiter: Waiter) -> Refused | None:
    """The refusal of a request, if any."""
    try:
        waiter.wait()
    except Refused as error:
        return error
    return None


def write_without_end(writer: Writer) -> None:
    while True:
        writer.send(b"x" * 100_000)
        writer.flush()


@scenario(
    memory=192,  # with TAIL_BYTES of its contents
    config=QUOTAS,
    users={
        "greedy": ("read .*", "write .*", "manage g.*"),
        "modest": ("read .*", "write .*"),
        "namer": ("read n.*",),
    },
)
def a_user_who_takes_all(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Request as much as possible of everything; each refusal names the quota and its value, and another user gets its
    full quota.
    """
    rounds = 5 if heavy else 1
    spec = control.StageSpec(application="greedy.app", version=1)

    def leases(connection: mtl.Connection, names: bool) -> Callable[[int], object]:
        def ask(number: int) -> object:
            name = f"{connection.settings.user}.w{number}" if names else None
            granted = connection.request(
                control.ConnectionWriter(resources=["r"], confirm="full", writer=name)
            )
            assert isinstance(granted, control.DataLease)
            if names:
                connection.request(control.LeaseClose(lease=granted.lease))
            else:
                held.append(granted.lease)
            return granted

        return ask

    def stage(_: int) -> None:
        granted = greedy.request(control.ConnectionWriter(resources=["r"], confirm="full", stage=spec))
        assert isinstance(granted, control.DataLease)
        assert granted.stage is not None
        greedy.request(control.LeaseClose(lease=granted.lease))
        staged.append(granted.stage)

    with (
        mtl.connect(broker.endpoint) as admin,
        mtl.connect(broker.endpoint, user="greedy", password=PASSWORD) as greedy,
        mtl.connect(broker.endpoint, user="modest", password=PASSWORD) as modest,
        mtl.connect(broker.endpoint, user="namer", password=PASSWORD) as namer,
    ):
        admin.create_resource("r")
        error = until_refused(lambda n: greedy.create_resource(f"g{n}"), 30)
        assert (error.members["quota"], error.members["limit"]) == ("resources", 30)
        greedy.delete_resource("g0")
        error = until_refused(lambda n: greedy.cursor_open(f"greedy.{n}", "r"), 30)
        assert (error.members["quota"], error.members["limit"]) == ("cursors", 30)
        modest.cursor_open("modest.g", "r")
        names = [f"n{number}" for number in range(1_000)]
        since = namer.describe(["n"], missing_ok=True).state
        many = control.ResourceDescribe(resources=names, missing_ok=True, since=since, wait=500)
        found = [outcome(waiter) for waiter in [namer.ask(many, patience=20.0)[1] for _ in range(3)]]
        (error,) = [refusal for refusal in found if refusal is not None]
        assert (error.members["quota"], error.members["limit"]) == ("waiting-names", 2_500)
        held: list[str] = []
        staged: list[str] = []
        for turn in range(rounds):
            error = until_refused(leases(greedy, names=False), 50)
            assert (error.reason, error.members["quota"], error.members["limit"]) == ("quota", "leases", 50)
            leases(modest, names=False)(0)
            for lease in held[:50]:
                greedy.request(control.LeaseClose(lease=lease))
            modest.request(control.LeaseClose(lease=held[50]))
            held.clear()
            if not turn:
                error = until_refused(leases(greedy, names=True), 100)
                assert (error.members["quota"], error.members["limit"]) == ("writer-names", 100)
            error = until_refused(stage, 40)
            assert (error.members["quota"], error.members["limit"]) == ("stages", 40)
            greedy.stage_abort(staged)
            staged.clear()
        staging = greedy.writer("r", stage=control.StageSpec(application="greedy.app", version=2))
        with pytest.raises(Refused) as caught:
            write_without_end(staging)
        full = caught.value.members
        assert (full["quota"], full["limit"]) == ("stage-bytes", 500_000)
        staging.abandon()
        leases(modest, names=True)(0)
        asks = control.ResourceDescribe(resource="r", since=greedy.describe(["r"]).state, wait=20_000)
        waiting = [greedy.ask(asks, patience=20.0)[1] for _ in range(25)]
        until = time.monotonic() + PATIENCE_S
        while sum(request.is_waiting(0.1) for request in waiting) > 20:
            assert time.monotonic() < until, "more wait than the quota allows"
        with modest.writer("r") as writer:
            writer.send(b"x")
        refused = [error for error in map(outcome, waiting) if error is not None]
        assert len(refused) == 5
        assert (refused[0].members["quota"], refused[0].members["limit"]) == ("waits", 20)
        greedy.create_resource("great")
        writer = greedy.writer("great", name="greedy.w0")
        with pytest.raises(Refused) as caught:
            write_without_end(writer)
        full = caught.value.members
        assert (full["quota"], full["limit"]) == ("stored-bytes", 1_000_000)
        writer.abandon()
        with modest.writer("r") as writer:
            writer.send(b"y")
        yield f"{rounds} times all leases and stages, all names, waits and octets, stages too"
