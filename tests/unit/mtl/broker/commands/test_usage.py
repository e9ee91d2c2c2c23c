"""Octets of a user on the disk: above the quota its leases end and its requests are refused."""

from __future__ import annotations

import logging

import pytest

from mtl.broker.commands.usage import USAGE_CHECK_S
from mtl.broker.quotas.quotas import DEFAULTS, Quota, QuotaSettings
from mtl.wire import control
from tests.support.core import Client, Rig
from tests.support.users import logged_in, rig_with, user

USERS = [user("me", "secret"), user("you", "secret")]
BODY = b"x" * 10_000


@pytest.fixture
def rig() -> Rig:
    """A user's resources, and its stages, may have 50,000 octets."""
    rig = rig_with(*USERS)
    rig.settings["quotas"] = QuotaSettings(DEFAULTS | {Quota.STORED_BYTES: 50_000, Quota.STAGE_BYTES: 50_000})
    restart(rig)
    return rig


def restart(rig: Rig) -> None:
    rig.restart()
    rig.broker.users(USERS, rig.now())


def check_usage(rig: Rig) -> None:
    rig.sleep(USAGE_CHECK_S + 1)


def refusal(client: Client, *resources: str) -> dict[str, object]:
    refused = client.refused(control.ConnectionWriter(resources=list(resources), confirm="full"))
    assert (refused.status, refused.reason) == (403, control.QUOTA)
    return refused.members


def test_the_octets_of_a_resource_count_for_the_user_that_created_it(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    me, you = logged_in(rig, "me"), logged_in(rig, "you")
    me.create("mine")
    you.create("yours")
    theirs, own = you.writer("mine"), me.writer("yours")
    flow = you.flow(theirs)
    for number in range(1, 7):
        flow.content(number, BODY)
    with caplog.at_level(logging.WARNING):
        check_usage(rig)
        check_usage(rig)
    assert rig.broker.parts.leases.find(theirs.lease) is None
    assert rig.broker.parts.leases.find(own.lease) is not None
    for client in (me, you):
        members = refusal(client, "mine")
        assert (members["quota"], members["limit"]) == ("stored-bytes", 50_000)
        assert isinstance(members["used"], int)
        assert members["used"] > 60_000
    messages = [record.message for record in caplog.records if record.name == "mtl.broker"]
    assert sum("stored-bytes" in line for line in messages) == 1, "once"
    audited = [record.message for record in caplog.records if record.name == "mtl.audit"]
    assert sum("lease-ended" in line and "quota stored-bytes" in line for line in audited) == 1
    refusal(me)  # any and all
    me.writer("yours")
    you.writer()
    you.create("more")
    assert len(me.read("mine")) == 6


def test_a_user_is_below_its_quota_again_after_contents_are_deleted(rig: Rig) -> None:
    me = logged_in(rig, "me")
    me.create("mine", "small")
    me.fill("mine", [BODY] * 6)
    check_usage(rig)
    refusal(me, "small")
    restart(rig)
    check_usage(rig)
    me = logged_in(rig, "me")
    refusal(me, "small")
    me.ask(control.ResourceDelete(resource="mine"), control.Ok)
    check_usage(rig)
    me.writer("small")


def test_octets_of_stages_count(rig: Rig) -> None:
    me, you = logged_in(rig, "me"), logged_in(rig, "you")
    you.create("a")
    stages = [me.staged("app", 1, "a", [BODY] * 3) for _ in range(2)]
    spec = control.StageSpec(application="app", version=1)
    filling = me.ask(control.ConnectionWriter(resources=["a"], confirm="full", stage=spec), control.DataLease)
    check_usage(rig)
    assert rig.broker.parts.leases.find(filling.lease) is None
    refused = me.refused(control.ConnectionWriter(resources=["a"], confirm="full", stage=spec))
    assert (refused.reason, refused.members["quota"]) == (control.QUOTA, "stage-bytes")
    you.staged("other", 1, "a", [b"x"])
    me.writer("a")
    me.commit("app", 1, *stages)
    check_usage(rig)
    you.ask(control.ResourceDelete(resource="a"), control.Ok)  # they are its maker's octets now
    check_usage(rig)
    you.create("a")
    me.staged("app", 2, "a", [b"x"])


def test_a_resource_made_by_a_lease_request_counts_for_its_user() -> None:
    rig = rig_with(*USERS)
    rig.settings |= {"auto_create": ("new*",), "quotas": QuotaSettings(DEFAULTS | {Quota.STORED_BYTES: 1})}
    restart(rig)
    me, you = logged_in(rig, "me"), logged_in(rig, "you")
    me.fill("new", [b"x"])
    you.reader("new2")
    found = {r.name: r.record.owner for r in rig.broker.parts.resources}
    assert found == {"new": "me", "new2": "you"}
    check_usage(rig)
    refusal(you, "new")


def test_dead_letters_count_for_the_owner_of_the_source_resource() -> None:
    rig = rig_with(*USERS)
    me, you = logged_in(rig, "me"), logged_in(rig, "you")
    me.create("a")
    me.fill("a", [b"x"])
    you.ask(control.ConnectionProfile(profile="queue"), control.Ok)
    flow = you.flow(you.ask(control.ConnectionReader(resources=["a"], confirm="full"), control.DataLease))
    flow.summon("a")
    flow.reject(1)
    rig.sleep(2)
    assert rig.broker.parts.resources.need("/", "a.dead").record.owner == "me"
