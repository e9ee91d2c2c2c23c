"""The core from the view of its loop: inputs, actions, timers, stop. Its decisions are tested in the other modules."""

from __future__ import annotations

import ast
import inspect

import msgspec
import pytest

from mtl import limits
from mtl.broker import actions, core
from mtl.broker import limits as broker_limits
from mtl.broker.assembly import CoreSettings, assemble
from mtl.broker.commands.granting import Ports
from mtl.storage.api import Append, Restored
from mtl.wire import commands, control
from mtl.wire.fields import EMPTY
from tests.support.core import Client, Rig


def test_the_same_inputs_give_the_same_outputs() -> None:
    def run() -> tuple[object, ...]:
        rig = Rig()
        client = rig.client()
        client.create("a", "b")
        client.fill("a", [b"x"] * 3)
        client.commit("app", 1, client.staged("app", 1, "b", [b"y"]))
        rig.sleep(20)
        client.ask(control.CursorOpen(group="g", resource="a"), control.CursorOpened)
        return client.describe("a"), client.describe("b"), dict(rig.store.rows)

    assert run() == run()


def test_a_broker_without_data_is_ready_and_idle() -> None:
    settings = CoreSettings(boot="boot", ports=Ports(1, 2))
    broker = assemble(settings, Restored(), bytes, lambda *_: None, actions.Now(0.0, 0))
    assert (broker.ready, broker.idle, broker.busy) == (True, True, False)
    assert broker.next_due is not None
    assert broker.pop_actions() == []
    assert not any(broker.statistics().values())


def test_statistics(rig: Rig, client: Client) -> None:
    client.create("a")
    client.flow(client.writer("a")).content(1, b"x")
    client.flow(client.reader("a")).raw(b"\xff")
    found = rig.broker.statistics()
    assert (found["sessions"], found["leases"], found["flows"]) == (1, 2, 2)
    assert (found["malformed"], found["inbound-octets"]) == (1, 0)
    assert all(isinstance(x, int) for x in found.values())


def test_inputs_have_no_effect_before_advance(rig: Rig, client: Client) -> None:
    client.create("a")
    flow = client.flow(client.writer("a"))
    flow.queue(*commands.encode(commands.Content(1, "a", EMPTY, b"x")))
    assert rig.broker.busy
    assert rig.broker.pop_actions() == []
    rig.broker.advance()
    (action,) = rig.broker.pop_actions()
    assert isinstance(action, Append)
    rig._perform(action)
    rig.run()


def test_next_due_comes_from_timers_and_from_blocked_readers(rig: Rig, client: Client) -> None:
    client.create("a")
    client.fill("a", [b"x"])
    rig.sleep(2 * limits.MARK_IDLE_S)
    due = rig.broker.next_due
    assert due is not None
    assert due == rig.mono + broker_limits.HEARTBEAT_CHECK_S  # no other work: an idle broker sleeps
    flow = client.flow(client.reader("a"))
    flow.room(1)
    flow.summon("a")
    blocked = rig.broker.next_due
    assert blocked is not None
    assert rig.mono < blocked < due


def test_inputs_about_ended_leases_are_ignored(rig: Rig) -> None:
    now = rig.now()
    rig.broker.blocked("gone", 1, now)
    rig.broker.unsent("gone", commands.Content(1, "", EMPTY, b""), now)
    rig.broker.unread("gone", "a", None, None, now)  # type: ignore[arg-type]  # it is not looked at
    rig.broker.unreachable((next(iter(rig.sockets.sent), None)), now)  # type: ignore[arg-type]  # nobody


def test_closing_waits_until_accepted_contents_are_durable(rig: Rig, client: Client) -> None:
    client.create("a")
    flow = client.flow(client.writer("a"))
    rig.hold(Append)
    for number in (1, 2, 3):
        flow.content(number, b"%d" % number)
    rig.broker.close(rig.now())
    idle = [rig.broker.idle]
    rig.let_go()
    idle.append(rig.broker.idle)
    assert idle == [False, True]
    assert flow.sent()[-1] == commands.Confirm(3, True)
    rig.storage.close()
    rig.start()
    assert rig.client().read("a") == [b"1", b"2", b"3"]


def test_closing_saves_the_cursors(rig: Rig, client: Client) -> None:
    client.create("a")
    client.fill("a", [b"x"] * 5)
    client.flow(client.reader("a", group="g", holder="d")).confirm(4)
    rig.stop()
    rig.crash()
    assert rig.client().reader("a", group="g", start=None).from_ == 5


def test_the_whole_state_survives_a_restart(rig: Rig, client: Client) -> None:
    client.create("a", durability="os", retention=control.Retention(contents=1_000))
    client.create("b")
    client.fill("a", [b"x"] * 3)
    client.ask(control.CursorOpen(group="g", resource="a", from_=2), control.CursorOpened)
    client.writer("a", writer="w")
    client.commit("app", 4, client.staged("app", 4, "b", [b"y"]))
    client.staged("app", 5, "a", [b"z"])
    client.stage("app", 5, "b")

    def everything(asking: Client) -> tuple[object, ...]:
        found = asking.ask(control.StageDescribe(), control.StageList)
        stages = [(x.stage, x.state, x.contents) for x in found.stages]
        described = asking.ask(control.ResourceDescribe(), control.DescriptionList).resources
        resources = [msgspec.structs.replace(x, bytes=0) for x in described]  # closing writes a mark
        cursors = [
            msgspec.structs.replace(x, bytes_behind=0, seconds_behind=0.0)
            for x in asking.ask(control.CursorDescribe(), control.CursorList).cursors
        ]
        return resources, cursors, stages, found.applications

    before = everything(client)
    for again in (rig.restart, rig.kill):
        again()
        assert everything(rig.client()) == before


@pytest.mark.parametrize("name", ["time", "socket", "threading", "random", "os", "datetime"])
def test_the_core_imports_no_clock_and_no_random_numbers(name: str) -> None:
    tree = ast.parse(inspect.getsource(core))
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert name not in imported
