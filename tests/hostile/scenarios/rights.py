"""Rights: a user with one grant for another resource, and its attempts to affect others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import mtl
from mtl.client.connection import Connection
from mtl.errors import MtlError, Refused
from mtl.testing import RunningBroker
from mtl.wire import control
from tests.hostile.harness import PASSWORD, add_user, scenario

PATIENCE_S = 20.0


def user(broker: RunningBroker, name: str, *grants: str) -> Connection:
    """A new user's connection; grants are "read a" and the like. A running broker finds users within a second."""
    add_user(broker.data, name, *grants)
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return mtl.connect(broker.endpoint, user=name, password=PASSWORD, retry_deadline=5.0)
        except MtlError:
            assert time.monotonic() < until, f"{name} never comes in"
            time.sleep(1.0)  # no event reports it


def status(work: Callable[[], object]) -> int:
    """The status of a refusal; 0 without one."""
    try:
        work()
    except Refused as error:
        return error.status
    return 0


@scenario()
def a_user_with_one_grant(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Attempts to fence, block, reset, settle, forget and take over by names of others; all are refused."""
    rounds = 300 if heavy else 5
    spec = control.StageSpec(application="theirs", version=2)
    with mtl.connect(broker.endpoint) as owner:
        for name in ("unrelated", "orders"):
            owner.create_resource(name)
        owner.stage_commit("theirs", 1, [])
        owner.cursor_open("theirs", "orders")
        writer = owner.writer("orders", name="theirs")
        staged = owner.writer(["orders", "unrelated"], stage=spec)
        staged.send(b"staged", resource="orders")
        staged.flush()
        stage = staged.stage
        assert stage is not None
        again = control.StageSpec(application="theirs", version=2, id=stage)
        with user(broker, "low", "read unrelated", "write unrelated") as low:
            tries = (
                lambda: low.writer("unrelated", name="theirs").abandon(),
                lambda: low.writer("unrelated", stage=again).abandon(),
                lambda: low.stage_commit("theirs", 1 << 62, []),
                lambda: low.stage_commit("theirs to be", 1 << 62, []),
                lambda: low.stage_abort([stage]),
                lambda: low.stage_forget("theirs"),
                lambda: low.reader("unrelated", group="theirs", start="earliest").close(),
                lambda: low.cursor_open("theirs", "unrelated"),
                lambda: low.cursor_reset("theirs", "orders", to="latest", force=True),
                lambda: low.cursor_delete("theirs", "orders"),
                lambda: low.consumer("unrelated").close(),
                lambda: low.queue_delete("default", "unrelated"),
            )
            for number in range(rounds):
                for at, attempt in enumerate(tries):
                    assert status(attempt) == 403, f"attempt {at} was not refused"
                writer.send(b"%d" % number)
                writer.flush()
        sealed = staged.seal().stage
        owner.stage_commit("theirs", 2, [sealed])
        assert owner.stage_commit("theirs to be", 1, []).already is False
        (cursor,) = owner.cursors("theirs", "orders")
        assert cursor.position == 1
        writer.close()
        yield f"{rounds * len(tries):,} attempts of {len(tries)} kinds, each refused"
