"""Lease.Close, and the properties that all grants share. The grants of each kind are in the files beside this one."""

from __future__ import annotations

import msgspec
import pytest

from mtl import limits
from mtl.broker.access.authentication import AuthenticationSettings
from mtl.broker.commands.granting import Ports
from mtl.errors import Refused
from mtl.protocol.sasl.client import Credentials
from mtl.storage.api import Append, CreateLog, Save
from mtl.storage.records import GrantRecord
from mtl.wire import commands, control
from tests.support.core import Client, Flow, Rig
from tests.support.faulty_store import FaultyStore, refuse
from tests.support.users import authenticate, logged_in, login, user

OPEN = control.ConnectionOpen(protocol=control.Protocol())


@pytest.fixture(autouse=True)
def resources(client: Client) -> None:
    client.create("a", "b")


# --- ports --------------------------------------------------------------------------------------------------


def test_without_ports_a_lease_names_an_endpoint(rig: Rig, client: Client) -> None:
    granting = rig.broker.parts.granting
    granting._ports = Ports(0, 0, "ipc:///x.packed", "ipc:///x.plain")
    assert client.reader("a").endpoint == "ipc:///x.plain"
    assert client.reader("a", packed=True).endpoint == "ipc:///x.packed"


# --- Lease.Close --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_close_ends_a_lease(client: Client, kind: str) -> None:
    lease = getattr(client, kind)("a")
    flow = client.flow(lease)
    assert client.close_lease(lease).stage is None
    assert not flow.ponged()
    assert flow.lease(lease.lease) == 403


@pytest.mark.parametrize("token", ["", "0" * 32, "closed"])
def test_close_of_an_unknown_or_closed_lease_is_refused(client: Client, token: str) -> None:
    if token == "closed":
        lease = client.writer("a")
        client.close_lease(lease)
        token = lease.lease
    refused = client.refused(control.LeaseClose(lease=token))
    assert (refused.status, refused.reason) == (404, control.UNKNOWN_LEASE)


def test_a_lease_may_be_closed_from_another_session_by_its_token(rig: Rig, client: Client) -> None:
    """A client has a new session when the former one expired; the lease outlives it."""
    lease = client.stage("app", 1, "a")
    client.flow(lease).content(1, b"x")
    sealed = rig.client().close_lease(lease).stage
    assert sealed is not None
    assert sealed.contents == {"a": 1}


def test_a_lease_cannot_be_closed_from_another_virtual_host() -> None:
    rig = Rig(virtual_hosts=("/", "other"))
    client = rig.client()
    client.create("a")
    lease = client.writer("a")
    assert rig.client(virtual_host="other").refused(control.LeaseClose(lease=lease.lease)).status == 404
    client.close_lease(lease)


def test_close_seals_a_stage(client: Client) -> None:
    lease = client.stage("app", 1, "a", "b")
    flow = client.flow(lease)
    for number in (1, 2, 3):
        flow.content(number, b"x", "a" if number < 3 else "b")
    sealed = client.close_lease(lease).stage
    assert sealed is not None
    assert (sealed.stage, sealed.contents) == (lease.stage, {"a": 2, "b": 1})
    assert sealed.bytes > 0


def test_a_repeated_close_of_a_stage_gets_the_same_answer(client: Client) -> None:
    """The first answer was lost; the client cannot know whether the stage is sealed."""
    lease = client.stage("app", 1, "a")
    client.flow(lease).content(1, b"x")
    assert client.close_lease(lease) == client.close_lease(lease)
    assert lease.stage is not None
    client.commit("app", 1, lease.stage)
    assert client.refused(control.LeaseClose(lease=lease.lease)).status == 404


def test_a_stage_is_not_sealed_before_its_contents_are_durable(rig: Rig, client: Client) -> None:
    lease = client.stage("app", 1, "a")
    flow = client.flow(lease)
    rig.hold(Append)
    flow.content(1, b"x")
    refused = client.refused(control.LeaseClose(lease=lease.lease))
    assert (refused.status, refused.reason) == (409, control.UNSEALED)
    rig.let_go()
    assert client.close_lease(lease).stage is not None


def test_contents_that_arrive_while_a_stage_is_sealed_are_dropped(rig: Rig, client: Client) -> None:
    """The seal does not count them, so they must not be confirmed."""
    lease = client.stage("app", 1, "a")
    flow = client.flow(lease)
    flow.content(1, b"x")
    flow.sent()
    rig.hold(Save)
    closed = client.begin(control.LeaseClose(lease=lease.lease))
    assert client.refused(control.LeaseClose(lease=lease.lease)).status == 503
    flow.content(2, b"late")
    rig.let_go()
    sealed = closed.reply(control.LeaseClosed).stage
    assert sealed is not None
    assert sealed.contents == {"a": 1}
    assert flow.sent() == []


def test_a_failed_seal_leaves_the_lease_usable(rig: Rig, client: Client) -> None:
    lease = client.stage("app", 1, "a")
    flow = client.flow(lease)
    flow.content(1, b"x")

    def full(when: str) -> None:
        raise refuse(full=True)

    rig.store.hook = full
    assert client.refused(control.LeaseClose(lease=lease.lease)).status == 503
    rig.store.hook = FaultyStore().hook
    flow.content(2, b"y")
    assert flow.sent() == [commands.Confirm(1, True), commands.Confirm(2, True)]
    assert client.close_lease(lease).stage is not None


def test_close_of_the_lease_of_an_aborted_stage_is_refused(rig: Rig, client: Client) -> None:
    lease = client.stage("app", 1, "a")
    rig.hold(Save)
    assert lease.stage is not None
    aborted = client.begin(control.StageAbort(stages=[lease.stage]))
    assert client.refused(control.LeaseClose(lease=lease.lease)).status == 404
    rig.let_go()
    aborted.reply(control.Ok)


def test_grants_announce_the_limits(client: Client) -> None:
    lease = client.writer("a")
    assert (lease.max_content, lease.max_pack) == (limits.MAX_CONTENT, limits.MAX_PACK)


# --- requests that wait -------------------------------------------------------------------------------------


def waiting_request(kind: str) -> control.Request:
    """A request that waits for the disk before its grant: it makes a resource, a cursor, a name, a stage or a queue."""
    return {
        "created reader": control.ConnectionReader(resources=["new"], confirm="full", from_="earliest"),
        "created writer": control.ConnectionWriter(resources=["new"], confirm="full"),
        "group": control.ConnectionReader(resources=["a"], confirm="full", group="me.g"),
        "name": control.ConnectionWriter(resources=["a"], confirm="full", writer="me.w"),
        "stage": control.ConnectionWriter(
            resources=["a"], confirm="full", stage=control.StageSpec(application="me.app", version=1)
        ),
    }[kind]


WAITING = ["created reader", "created writer", "group", "name", "stage"]


def rig_of_two() -> Rig:
    """Two virtual hosts with resources of the same names, and users that reach different ones."""
    settings = AuthenticationSettings(anonymous=False, secret=b"secret of the directory")
    rig = Rig(virtual_hosts=("/", "/finance"), auto_create=("new",), authentication=settings)
    mine = user("me", "secret", "read .*", "write .*", "manage .*")
    also = msgspec.structs.replace(mine, grants=(*mine.grants, GrantRecord("/finance", "read", "harmless")))
    owner = user("owner", "secret", vhost="/finance")
    rig.broker.users([also, owner], rig.now())
    finance = Client(rig)
    login(finance, Credentials("owner", "secret"), vhost="/finance")
    finance.ask(control.ConnectionProfile(profile="log"), control.Ok)
    finance.create("a", "new")
    finance.fill("a", [b"theirs"])
    logged_in(rig, "me").create("a")
    return rig


@pytest.mark.parametrize("kind", WAITING)
def test_a_pending_request_keeps_its_virtual_host(kind: str) -> None:
    """An Open behind it names another virtual host, and does not wait for the first 201."""
    rig = rig_of_two()
    client = logged_in(rig, "me")
    rig.hold(Save, CreateLog)
    waiting = client.begin(waiting_request(kind))
    assert not waiting.answered
    client.begin(control.ConnectionOpen(protocol=control.Protocol(), virtual_host="/finance")).reply(
        control.Unauthorized
    )
    rig.let_go()
    lease = waiting.reply(control.DataLease)
    granted = rig.broker.parts.leases.find(lease.lease)
    assert granted is not None
    assert granted.terms.vhost == "/"


def test_an_open_changes_nothing_before_its_201() -> None:
    rig = rig_of_two()
    client = logged_in(rig, "me")
    waiting = client.begin(control.ConnectionOpen(protocol=control.Protocol(), virtual_host="/finance"))
    waiting.reply(control.Unauthorized)
    (session,) = [s for s in rig.broker.parts.sessions._by_id.values() if s.token == client.session]
    assert session.vhost == "/"


@pytest.mark.parametrize("kind", WAITING)
@pytest.mark.parametrize("change", ["the user is removed", "the right is taken", "the session changes hands"])
def test_a_pending_request_is_authorised_again_before_its_grant(kind: str, change: str) -> None:
    rig = rig_of_two()
    client = logged_in(rig, "me")
    others = [r for r in rig.broker.accounts._users.values() if r.name != "me"]
    rig.broker.users([*others, user("me", "secret"), user("you", "secret")], rig.now())
    rig.hold(Save, CreateLog)
    waiting = client.begin(waiting_request(kind))
    assert not waiting.answered
    match change:
        case "the user is removed":
            rig.broker.users(others, rig.now())
        case "the right is taken":
            rig.broker.users([*others, user("me", "secret", "read other", "write other")], rig.now())
        case _:
            authenticate(client, Credentials("you", "secret"), client.ask(OPEN, control.Unauthorized))
    rig.let_go()
    with pytest.raises(Refused) as caught:
        waiting.reply(control.DataLease)
    assert (caught.value.status, caught.value.reason) == (403, control.NOT_AUTHORIZED)
    assert len(rig.broker.parts.leases) == 0
    assert not rig.broker.parts.readers.of(rig.broker.parts.resources.need("/", "a"))


# --- the same request again -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["reader", "writer"])
def test_a_repeated_request_replaces_the_lease_whose_202_was_lost(
    rig: Rig, client: Client, kind: str
) -> None:
    """Under another session as well: a client whose session expired repeats its request under a new one."""
    lost = getattr(client, kind)("a", request_id="r")
    again = getattr(rig.client(), kind)("a", request_id="r")
    flow = Flow(rig, again.port)
    assert (flow.lease(lost.lease), flow.lease(again.lease)) == (403, 200)
    client.close_lease(again)
    assert getattr(client, kind)("a", request_id="r").lease != again.lease


def test_requests_with_different_or_no_ids_get_separate_leases(rig: Rig, client: Client) -> None:
    """As in the RFC: a client may hold several leases."""
    leases = [client.writer("a", request_id=x) for x in ("r", "s", None, None)]
    assert [Flow(rig, x.port).lease(x.lease) for x in leases] == [200] * 4


def test_request_ids_are_separate_per_virtual_host() -> None:
    rig = Rig(virtual_hosts=("/", "other"))
    client, other = rig.client(), rig.client(virtual_host="other")
    leases = []
    for asking in (client, other):
        asking.create("a")
        leases.append(asking.writer("a", request_id="r"))
    assert [Flow(rig, x.port).lease(x.lease) for x in leases] == [200, 200]
