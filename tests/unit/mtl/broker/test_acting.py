"""Acting as another user (PROTOCOL.md 2.1): what a door does for its peers, and nobody without a grant."""

from __future__ import annotations

import logging

import pytest

from mtl.errors import Refused
from mtl.protocol.sasl.client import Authentication, Credentials
from mtl.protocol.sasl.server import ANONYMOUS_USER
from mtl.wire import control as w
from tests.support.core import Client, Rig
from tests.support.users import login, rig_with, user

ALICE = user("alice", "secret", "read a.*", "write a.*", "manage a.*")
BOB = user("bob", "secret")
DOOR = user("door", "secret", "act-as alice|eve|anonymous")


def acting(rig: Rig, whom: str) -> Client:
    """The door, as somebody else."""
    client = Client(rig)
    login(client, Credentials("door", "secret", acting_as=whom))
    client.ask(w.Profile(profile="log"), w.Ok)
    return client


def status(rig: Rig, credentials: Credentials) -> int:
    with pytest.raises(Refused) as refused:
        login(Client(rig), credentials)
    return refused.value.status


def test_who_acts_as_a_user_has_its_grants_and_not_ones_own() -> None:
    rig = rig_with(ALICE, BOB, user("door", "secret", "act-as alice", "read .*", "write .*", "manage .*"))
    client = acting(rig, "alice")
    client.create("a")
    assert client.refused(w.ResourceCreate(resource="b")).reason == w.NOT_AUTHORIZED


def test_the_201_says_that_it_was_done() -> None:
    rig = rig_with(ALICE, DOOR)
    assert login(Client(rig), Credentials("door", "secret", acting_as="alice")).acting_as == "alice"
    assert login(Client(rig), Credentials("alice", "secret")).acting_as is None


@pytest.mark.parametrize("whom", ["bob", "eve", ANONYMOUS_USER, "door.alice"])
def test_nobody_acts_as_a_user_without_the_grant_or_that_there_is_not(whom: str) -> None:
    rig = rig_with(ALICE, BOB, user(ANONYMOUS_USER, None, "read .*"), user("door.alice", "secret"), DOOR)
    assert status(rig, Credentials("door", "secret", acting_as=whom)) == 403


def test_no_right_on_resources_and_no_right_in_another_virtual_host_is_enough() -> None:
    bob = user("bob", "secret", "read .*", "write .*", "manage .*", "group .*", "queue .*", "writer .*")
    rig = rig_with(ALICE, user("door", "secret", "act-as alice", vhost="/other"), bob)
    assert status(rig, Credentials("door", "secret", acting_as="alice")) == 403
    assert status(rig, Credentials("bob", "secret", acting_as="alice")) == 403


def test_who_has_nothing_but_that_comes_in_and_may_do_nothing_as_itself() -> None:
    rig = rig_with(ALICE, DOOR)
    client = Client(rig)
    login(client, Credentials("door", "secret"))
    client.ask(w.Profile(profile="log"), w.Ok)
    assert client.refused(w.ResourceCreate(resource="alice")).reason == w.NOT_AUTHORIZED


@pytest.mark.parametrize(
    "after",
    [
        [ALICE],
        [ALICE, user("door", "secret", "act-as bob")],
        [DOOR],
    ],
    ids=["it is removed", "it has lost the grant", "the user is removed"],
)
def test_leases_end_when_it_may_not_act_as_the_user_any_more(after: list[object]) -> None:
    rig = rig_with(ALICE, BOB, DOOR)
    client = acting(rig, "alice")
    client.create("a")
    lease = client.writer("a")
    flow = client.flow(lease)
    assert flow.lease(lease.lease) == 200
    rig.broker.users([*after, BOB], rig.now())  # type: ignore[list-item]
    assert flow.lease(lease.lease) == 403
    client.ask(w.ResourceList(), w.Unauthorized)


def test_a_new_password_of_either_is_asked_for_and_leases_stay() -> None:
    for changed in ([ALICE, user("door", "changed", "act-as alice")], [user("alice", "changed"), DOOR]):
        rig = rig_with(ALICE, DOOR)
        client = acting(rig, "alice")
        client.create("a")
        lease = client.writer("a")
        flow = client.flow(lease)
        rig.broker.users(changed, rig.now())
        client.ask(w.ResourceList(), w.Unauthorized)
        assert flow.lease(lease.lease) == 200


def test_the_audit_log_says_who_acts(caplog: pytest.LogCaptureFixture) -> None:
    rig = rig_with(ALICE, DOOR)
    with caplog.at_level(logging.INFO, logger="mtl.audit"):
        acting(rig, "alice")
        login(Client(rig), Credentials("alice", "secret"))
    said = [getattr(record, "fields", {}) for record in caplog.records]
    assert [(one["event"], one["user"], one.get("by")) for one in said] == [
        ("login", "alice", "door"),
        ("login", "alice", None),
    ]


def test_a_client_does_not_go_on_with_its_own_rights() -> None:
    """Where the broker does not know what it asked for."""
    conversation = Authentication(Credentials("me", "secret", "PLAIN", acting_as="alice"))
    assert conversation.begin(["PLAIN"]).acting_as == "alice"
    with pytest.raises(Refused, match="not to act as 'alice'"):
        conversation.finish(w.Ready(profiles=["log"]))
