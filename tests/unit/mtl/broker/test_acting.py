"""Acting as another user (PROTOCOL.md 2.1), as doors do for their peers: needs a grant."""

from __future__ import annotations

import logging

import pytest

from mtl.errors import Refused
from mtl.protocol.sasl.client import Authentication, Credentials
from mtl.protocol.sasl.server import ANONYMOUS_USER
from mtl.wire import control
from tests.support.core import Client, Rig
from tests.support.users import login, rig_with, user

ALICE = user("alice", "secret", "read a.*", "write a.*", "manage a.*")
BOB = user("bob", "secret")
DOOR = user("door", "secret", "act-as alice|eve|anonymous")


def acting(rig: Rig, name: str) -> Client:
    """A client of the door that acts as another user."""
    client = Client(rig)
    login(client, Credentials("door", "secret", acting_as=name))
    client.ask(control.ConnectionProfile(profile="log"), control.Ok)
    return client


def status(rig: Rig, credentials: Credentials) -> int:
    with pytest.raises(Refused) as refused:
        login(Client(rig), credentials)
    return refused.value.status


def test_an_acting_session_has_the_grants_of_the_other_user_only() -> None:
    rig = rig_with(ALICE, BOB, user("door", "secret", "act-as alice", "read .*", "write .*", "manage .*"))
    client = acting(rig, "alice")
    client.create("a")
    assert client.refused(control.ResourceCreate(resource="b")).reason == control.NOT_AUTHORIZED


def test_the_201_names_the_user_acted_for() -> None:
    rig = rig_with(ALICE, DOOR)
    assert login(Client(rig), Credentials("door", "secret", acting_as="alice")).acting_as == "alice"
    assert login(Client(rig), Credentials("alice", "secret")).acting_as is None


@pytest.mark.parametrize("name", ["bob", "eve", ANONYMOUS_USER, "door.alice"])
def test_acting_without_grant_or_as_an_unknown_user_is_refused(name: str) -> None:
    rig = rig_with(ALICE, BOB, user(ANONYMOUS_USER, None, "read .*"), user("door.alice", "secret"), DOOR)
    assert status(rig, Credentials("door", "secret", acting_as=name)) == 403


def test_acting_needs_the_grant_in_the_same_virtual_host() -> None:
    bob = user("bob", "secret", "read .*", "write .*", "manage .*", "group .*", "queue .*", "writer .*")
    rig = rig_with(ALICE, user("door", "secret", "act-as alice", vhost="/other"), bob)
    assert status(rig, Credentials("door", "secret", acting_as="alice")) == 403
    assert status(rig, Credentials("bob", "secret", acting_as="alice")) == 403


def test_a_user_with_only_the_grant_to_act_may_log_in_but_has_no_rights() -> None:
    rig = rig_with(ALICE, DOOR)
    client = Client(rig)
    login(client, Credentials("door", "secret"))
    client.ask(control.ConnectionProfile(profile="log"), control.Ok)
    assert client.refused(control.ResourceCreate(resource="alice")).reason == control.NOT_AUTHORIZED


@pytest.mark.parametrize(
    "after",
    [
        [ALICE],
        [ALICE, user("door", "secret", "act-as bob")],
        [DOOR],
    ],
    ids=["it is removed", "it has lost the grant", "the user is removed"],
)
def test_leases_end_when_the_grant_to_act_is_revoked(after: list[object]) -> None:
    rig = rig_with(ALICE, BOB, DOOR)
    client = acting(rig, "alice")
    client.create("a")
    lease = client.writer("a")
    flow = client.flow(lease)
    assert flow.lease(lease.lease) == 200
    rig.broker.users([*after, BOB], rig.now())  # type: ignore[list-item]
    assert flow.lease(lease.lease) == 403
    client.ask(control.ResourceList(), control.Unauthorized)


def test_a_new_password_of_either_user_needs_a_log_in_and_keeps_leases() -> None:
    for changed in ([ALICE, user("door", "changed", "act-as alice")], [user("alice", "changed"), DOOR]):
        rig = rig_with(ALICE, DOOR)
        client = acting(rig, "alice")
        client.create("a")
        lease = client.writer("a")
        flow = client.flow(lease)
        rig.broker.users(changed, rig.now())
        client.ask(control.ResourceList(), control.Unauthorized)
        assert flow.lease(lease.lease) == 200


def test_the_audit_log_names_both_users(caplog: pytest.LogCaptureFixture) -> None:
    rig = rig_with(ALICE, DOOR)
    with caplog.at_level(logging.INFO, logger="mtl.audit"):
        acting(rig, "alice")
        login(Client(rig), Credentials("alice", "secret"))
    fields = [getattr(record, "fields", {}) for record in caplog.records]
    assert [(event["event"], event["user"], event.get("by")) for event in fields] == [
        ("login", "alice", "door"),
        ("login", "alice", None),
    ]


def test_a_client_refuses_a_session_that_does_not_act() -> None:
    """A broker without support for acting opens a session with the client's own rights."""
    conversation = Authentication(Credentials("me", "secret", "PLAIN", acting_as="alice"))
    assert conversation.begin(["PLAIN"]).acting_as == "alice"
    with pytest.raises(Refused, match="not to act as 'alice'"):
        conversation.finish(control.Ready(profiles=["log"]))
