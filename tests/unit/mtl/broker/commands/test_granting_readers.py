"""Connection.Reader: its start, the members of the 202, and refusals. Groups are in test_cursors."""

from __future__ import annotations

from typing import Any

import pytest

from mtl.broker import limits as broker_limits
from mtl.broker.commands.granting_readers import LocalReads
from mtl.errors import DataLoss, Refused
from mtl.storage.api import Save
from mtl.storage.records import record_key
from mtl.wire import control
from tests.support.core import PORTS, Client, Rig
from tests.support.faulty_store import FaultyStore


@pytest.fixture(autouse=True)
def resource(client: Client) -> None:
    client.create("a")
    client.fill("a", [b"1", b"2", b"3"])


@pytest.mark.requirement("MTL-42", "MTL-48")
def test_the_202_echoes_range_window_and_incarnation(client: Client) -> None:
    lease = client.reader("a", start=2, until=9, packed=True, window=control.Window(contents=5, bytes=600))
    description = client.describe("a")
    assert lease.port in PORTS.values()
    assert (lease.from_, lease.until, lease.packed, lease.window) == (
        2,
        9,
        True,
        control.Window(contents=5, bytes=600),
    )
    assert (lease.incarnation, lease.earliest, lease.next) == (description.incarnation, 1, 4)
    assert (lease.max_content, lease.max_pack, lease.heartbeat) == (4 << 20, 4 << 20, 5.0)
    assert (lease.epoch, lease.position) == (None, None)


def test_defaults(client: Client) -> None:
    lease = client.ask(control.ConnectionReader(resources=["a"], confirm="full"), control.DataLease)
    assert (lease.packed, lease.until, lease.from_) == (False, None, 4)
    assert lease.window == control.Window(contents=1_000, bytes=8 << 20)
    assert client.ask(control.ConnectionReader(resources=["a"]), control.DataLease).window is None


def test_a_window_is_granted_up_to_the_limits(client: Client) -> None:
    lease = client.reader("a", window=control.Window(contents=1 << 40, bytes=1 << 50))
    assert lease.window == control.Window(
        contents=broker_limits.MAX_WINDOW_CONTENTS, bytes=broker_limits.MAX_WINDOW_OCTETS
    )


@pytest.mark.parametrize(
    ("start", "resolved"), [("earliest", 1), ("latest", 4), (1, 1), (2, 2), (4, 4), (None, 4)]
)
def test_from_in_every_form(client: Client, start: Any, resolved: int) -> None:
    assert client.reader("a", start=start).from_ == resolved


FILES = control.LocalFiles(directory="/data", key="secret")


@pytest.mark.parametrize(
    ("packed", "machine", "granted"),
    [(True, "here", FILES), (True, "elsewhere", None), (True, None, None), (False, "here", None)],
)
def test_a_packed_reader_on_the_same_machine_is_granted_local_files(
    packed: bool, machine: str | None, granted: control.LocalFiles | None
) -> None:
    client = Rig(local_reads=LocalReads("here", FILES)).client()
    client.create("a")
    request_ = control.ConnectionReader(resources=["a"], from_="earliest", packed=packed, local=machine)
    assert client.ask(request_, control.DataLease).local == granted


def test_without_local_reads_no_local_files_are_granted(client: Client) -> None:
    request_ = control.ConnectionReader(resources=["a"], from_="earliest", packed=True, local="here")
    assert client.ask(request_, control.DataLease).local is None


def test_latest_is_resolved_when_the_202_is_sent_and_not_at_summon(client: Client) -> None:
    lease = client.reader("a", start="latest")
    client.fill("a", [b"between"])
    flow = client.flow(lease)
    flow.summon("a")
    assert flow.bodies() == [b"between"]


@pytest.mark.requirement("MTL-49", "MTL-52")
@pytest.mark.parametrize(
    ("request_", "status", "reason"),
    [
        (control.ConnectionReader(resources=[]), 400, control.BAD_ARGUMENTS),
        (control.ConnectionReader(resources=["a", "b"]), 400, control.BAD_ARGUMENTS),
        (control.ConnectionReader(resources=["nowhere"]), 404, control.UNKNOWN_RESOURCE),
        (control.ConnectionReader(resources=["a"], confirm="half"), 501, control.UNSUPPORTED),
        (control.ConnectionReader(resources=["a"], incarnation="another"), 409, control.INCARNATION),
        (control.ConnectionReader(resources=["a"], from_="group"), 400, control.BAD_ARGUMENTS),
        (control.ConnectionReader(resources=["a"], from_=0), 400, control.BAD_ARGUMENTS),
        (control.ConnectionReader(resources=["a"], from_=5), 409, control.DATA_LOSS),
    ],
)
def test_refusals(client: Client, request_: control.ConnectionReader, status: int, reason: str) -> None:
    refused = client.refused(request_)
    assert (refused.status, refused.reason) == (status, reason)
    assert refused.message


def test_a_wrong_incarnation_is_refused_with_the_current_one_and_its_range(client: Client) -> None:
    refused = client.refused(control.ConnectionReader(resources=["a"], incarnation="another"))
    assert refused.members["incarnation"] == client.describe("a").incarnation
    assert (refused.members["earliest"], refused.members["next"]) == (1, 4)


def test_a_start_above_the_end_is_refused_with_the_range(client: Client) -> None:
    refused = client.refused(control.ConnectionReader(resources=["a"], from_=9))
    assert isinstance(refused, DataLoss)
    assert (refused.resource, refused.first, refused.end) == ("a", 4, 9)


def test_a_start_removed_by_retention_is_refused_with_the_range() -> None:
    rig = Rig(segment_bytes=1_200)
    client = rig.client()
    client.create("a", retention=control.Retention(contents=1))
    client.fill("a", [bytes(1_000)] * 5)
    rig.sleep(6)
    earliest = client.describe("a").earliest
    refused = client.refused(control.ConnectionReader(resources=["a"], from_=1))
    assert isinstance(refused, DataLoss)
    assert (refused.first, refused.end, refused.count) == (1, earliest, earliest - 1)
    assert client.reader("a", start=earliest).from_ == earliest


def test_delete_of_the_resource_while_its_cursor_is_saved_refuses_the_lease(rig: Rig, client: Client) -> None:
    rig.hold(Save)
    asked = client.begin(control.ConnectionReader(resources=["a"], group="g", from_="earliest"))
    client.begin(control.ResourceDelete(resource="a"))
    rig.let_go()
    with pytest.raises(Refused):
        asked.reply(control.DataLease)
    assert len(rig.broker.parts.leases) == 0


# --- made by name -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [control.ConnectionReader, control.ConnectionWriter])
@pytest.mark.parametrize(
    ("name", "made"), [("auto-1", True), ("b", True), ("c", False), ("Auto-1", False), ("xauto-1", False)]
)
def test_auto_create_makes_resources_that_match_its_patterns(kind: Any, name: str, made: bool) -> None:
    client = Rig(auto_create=("auto-*", "[ab]")).client()
    if made:
        client.ask(kind(resources=[name], confirm="full"), control.DataLease)
        client.fill(name, [b"x"])
        assert client.read(name) == [b"x"]
    else:
        assert client.refused(kind(resources=[name])).status == 404


def test_auto_create_makes_all_resources_of_a_request_or_none(rig: Rig) -> None:
    rig = Rig(auto_create=("auto-*",))
    client = rig.client()
    refused = client.refused(control.ConnectionWriter(resources=["auto-1", "other", "auto-2"]))
    assert refused.members["missing"] == ["other"]
    assert client.ask(control.ResourceList(), control.DescriptionList).resources == []
    client.writer("auto-1", "auto-2", "auto-1")
    assert len(client.ask(control.ResourceList(), control.DescriptionList).resources) == 2


def test_auto_create_creates_no_resource_if_its_record_cannot_be_read() -> None:
    store = FaultyStore()
    store.damage("resource", record_key("/", "auto-2"))
    client = Rig(store=store, auto_create=("auto-*",)).client()
    refused = client.refused(control.ConnectionWriter(resources=["auto-1", "auto-2"]))
    assert (refused.status, refused.reason) == (503, control.STORAGE)
    assert client.refused(control.ResourceDescribe(resource="auto-1")).status == 404


def test_auto_create_above_the_limit_of_resources_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Rig(auto_create=("*",)).client()
    monkeypatch.setattr(broker_limits, "MAX_RESOURCES", 0)
    assert client.refused(control.ConnectionWriter(resources=["auto"])).status == 503


def test_auto_create_that_fails_is_a_refusal() -> None:
    rig = Rig(auto_create=("*",))
    client = rig.client()
    rig.disk.fail("create")
    refused = client.refused(control.ConnectionWriter(resources=["auto"]))
    assert (refused.status, refused.reason) == (503, control.STORAGE)
    client.writer("auto")


# --- epochs (PROTOCOL.md 5.1.1) -----------------------------------------------------------------------------


def lost(client: Client, request_: control.Request) -> tuple[int, int, int]:
    """The range of a data loss, and where to go on."""
    refused = client.refused(request_)
    assert isinstance(refused, DataLoss), refused
    return refused.first, refused.end, refused.resume


def test_the_202_has_the_epochs_from_the_start_on(rig: Rig, client: Client) -> None:
    first = client.describe("a").log_epoch
    assert client.reader("a", start=1).history == ((1, first),)
    rig.restart()
    client = rig.client()
    ((_, epoch), (begins, coming)) = client.reader("a", start=1).history or ()
    assert (epoch, begins) == (first, 4), "the contents to come will be of another epoch"
    client.fill("a", [b"4", b"5"])
    assert client.describe("a").log_epoch == coming
    assert client.reader("a", start=5).history == ((4, coming),)
    assert client.reader("a", start=4).history == ((1, first), (4, coming))
    found = client.ask(
        control.ResourceDescribe(resource="a", history=True), control.DescriptionList
    ).resources[0]
    assert found.history == ((1, first), (4, coming))


@pytest.mark.parametrize("both_restarted", [False, True])
def test_a_reader_of_another_copy_of_the_log_is_refused(
    rig: Rig, client: Client, both_restarted: bool
) -> None:
    copy = rig.copy()
    if both_restarted:  # so that original and copy have an epoch of the same number
        rig.restart()
        client = rig.client()
    client.fill("a", [b"4", b"5"])
    epoch = client.describe("a").log_epoch
    rig.put_back(copy)
    client = rig.client()
    at_4 = control.ConnectionReader(resources=["a"], from_=4, log_epoch=client.describe("a").log_epoch)
    assert lost(client, control.ConnectionReader(resources=["a"], from_=6, log_epoch=epoch)) == (4, 6, 4)
    client.fill("a", [b"other"] * 9)
    assert lost(client, control.ConnectionReader(resources=["a"], from_=6, log_epoch=epoch)) == (4, 6, 4)
    assert lost(client, control.ResourceLocate(resource="a", start=6, log_epoch=epoch)) == (4, 6, 4)
    assert lost(client, control.CursorOpen(group="g", resource="a", from_=6, log_epoch=epoch)) == (4, 6, 4)
    assert client.ask(at_4, control.DataLease).from_ == 4, "up to there both are alike"
    assert client.ask(control.ConnectionReader(resources=["a"], from_=6), control.DataLease).from_ == 6, (
        "without an epoch in the request"
    )
