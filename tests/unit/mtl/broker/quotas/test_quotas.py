"""Quotas of a user: each quota, users without quotas, and restarts."""

from __future__ import annotations

import pytest

from mtl.broker import limits as broker_limits
from mtl.broker.quotas.quotas import DEFAULTS, Quota, Quotas, QuotaSettings, highest, total_of
from mtl.errors import Refused
from mtl.protocol.sasl.client import Credentials
from mtl.storage.api import Save
from mtl.storage.records import UserRecord
from mtl.wire import control
from tests.support.core import Client, Rig, Waiting
from tests.support.users import logged_in, login, rig_with, user


def rig_of(quotas: dict[Quota, int], *users: UserRecord, **single: dict[Quota, int]) -> Rig:
    """A broker with the users me and you, and these quotas instead of the defaults."""
    rig = rig_with(user("me", "secret"), user("you", "secret"), *users)
    rig.settings["quotas"] = QuotaSettings(DEFAULTS | quotas, single)
    rig.stop()
    rig.start()
    rig.broker.users([user("me", "secret"), user("you", "secret"), *users], rig.now())
    return rig


def above(client: Client, request: control.Request, quota: Quota, limit: int) -> None:
    """The request is refused, and the refusal says which quota it is and how much it allows."""
    refused = client.refused(request)
    assert (refused.status, refused.reason) == (403, control.QUOTA)
    assert refused.members == {"quota": quota.value, "limit": limit, "used": limit}
    assert f"its quota {quota.value} is {limit}" in refused.message


def outcome(waiting: Waiting) -> control.Reply | Refused:
    """The reply or the refusal of a request."""
    try:
        return waiting.reply(control.DataLease)
    except Refused as refused:
        return refused


# --- users with quotas --------------------------------------------------------------------------------------


def test_a_user_has_its_own_quota_or_the_default() -> None:
    settings = QuotaSettings(DEFAULTS | {Quota.LEASES: 10}, {"etl": {Quota.LEASES: 20}})
    quotas = Quotas(settings, lambda principal: principal == "anonymous")
    assert quotas.limit("etl", Quota.LEASES) == 20
    assert quotas.limit("etl", Quota.WAITS) == DEFAULTS[Quota.WAITS]
    assert quotas.limit("bi", Quota.LEASES) == 10
    assert quotas.limit("anonymous", Quota.LEASES) is None
    assert [quotas.owner(name) for name in ("etl", "anonymous")] == ["etl", ""]
    quotas.check("bi", Quota.LEASES, 9)
    quotas.check("anonymous", Quota.LEASES, 1_000_000)
    with pytest.raises(Refused, match="'bi' has 10 leases"):
        quotas.check("bi", Quota.LEASES, 10)


@pytest.mark.parametrize("quota", Quota)
def test_every_total_leaves_a_reserve_for_other_users(quota: Quota) -> None:
    total, most = total_of(quota), highest(quota)
    assert (total is None) == (quota in {Quota.STAGE_BYTES, Quota.STORED_BYTES})
    if total is not None:
        assert most is not None
        assert DEFAULTS[quota] * 4 <= total
        assert DEFAULTS[quota] <= most < total


def test_unlimited_users_have_no_quota() -> None:
    rig = Rig(quotas=QuotaSettings(dict.fromkeys(Quota, 1)))
    client = rig.client()
    client.create("a")
    for _ in range(3):
        rig.client().writer("a")
        client.fill("a", [b"x"])
        client.staged("app", 1, "a", [b"x"])
    rig.sleep(10)
    client.fill("a", [b"x"])
    for number in range(3):
        client.ask(
            control.ConnectionWriter(resources=["a"], confirm="full", writer=f"w{number}"), control.DataLease
        )


# --- each of them -------------------------------------------------------------------------------------------


def test_quota_of_leases() -> None:
    rig = rig_of({Quota.LEASES: 2})
    me, you = logged_in(rig, "me"), logged_in(rig, "you")
    me.create("a")
    leases = [me.writer("a"), logged_in(rig, "me").reader("a")]
    above(me, control.ConnectionWriter(resources=["a"]), Quota.LEASES, 2)
    above(me, control.ConnectionReader(resources=["a"]), Quota.LEASES, 2)
    you.writer("a")
    me.close_lease(leases[0])
    me.writer("a")


def test_quota_of_names_in_leases() -> None:
    """A name counts once in a lease, and a lease that replaces another counts in its place."""
    rig = rig_of({Quota.LEASED_NAMES: 2})
    me, you = logged_in(rig, "me"), logged_in(rig, "you")
    for name in ("a", "b", "c"):
        me.create(name)
    lease = me.ask(control.ConnectionWriter(resources=["a", "b"] * 400, request_id="r"), control.DataLease)
    above(me, control.ConnectionReader(resources=["a"]), Quota.LEASED_NAMES, 2)
    me.ask(control.ConnectionWriter(resources=["b", "c"], request_id="r"), control.DataLease)
    me.writer()
    you.writer("a", "b")
    assert rig.broker.parts.leases.find(lease.lease) is None


def test_quota_of_names_in_waiting_requests() -> None:
    rig = rig_of({Quota.WAITING_NAMES: 3})
    me, you = logged_in(rig, "me"), logged_in(rig, "you")
    for name in ("a", "b"):
        me.create(name)
    state = me.ask(control.ResourceDescribe(), control.DescriptionList).state
    asks = control.ResourceDescribe(resources=["a", "b"], since=state, wait=20_000)
    one = control.ResourceDescribe(resource="a", since=state, wait=20_000)
    waiting = [logged_in(rig, "me").begin(asks), logged_in(rig, "me").begin(one)]
    above(me, one, Quota.WAITING_NAMES, 3)
    assert not you.begin(asks).answered
    me.fill("a", [b"x"])
    assert all(request.answered for request in waiting)
    state = me.ask(control.ResourceDescribe(), control.DescriptionList).state
    assert not me.begin(control.ResourceDescribe(resource="a", since=state, wait=20_000)).answered


def test_quota_of_patterns_in_waiting_requests() -> None:
    """Several requests with one pattern count once."""
    rig = rig_of({Quota.WAITING_PATTERNS: 2})
    me, you = logged_in(rig, "me"), logged_in(rig, "you")
    me.create("a")
    state = me.ask(control.ResourceDescribe(), control.DescriptionList).state
    everything = control.ResourceDescribe(since=state, wait=20_000)
    pattern = control.ResourceDescribe(pattern="b.*", since=state, wait=20_000)
    for asks in (everything, pattern, pattern):
        assert not logged_in(rig, "me").begin(asks).answered
    above(me, control.ResourceDescribe(pattern="c.*", since=state, wait=20_000), Quota.WAITING_PATTERNS, 2)
    assert not you.begin(control.ResourceDescribe(pattern="c.*", since=state, wait=20_000)).answered
    me.fill("a", [b"x"])
    state = me.ask(control.ResourceDescribe(), control.DescriptionList).state
    assert not me.begin(control.ResourceDescribe(pattern="c.*", since=state, wait=20_000)).answered


def test_quota_of_resources() -> None:
    rig = rig_of({Quota.RESOURCES: 2})
    me, you = logged_in(rig, "me"), logged_in(rig, "you")
    me.create("a")
    me.create("b")
    above(me, control.ResourceCreate(resource="c"), Quota.RESOURCES, 2)
    me.ask(control.ResourceCreate(resource="a", exist_ok=True), control.ResourceCreated)
    you.create("c")
    rig.restart()
    rig.broker.users([user("me", "secret"), user("you", "secret")], rig.now())
    me = logged_in(rig, "me")
    above(me, control.ResourceCreate(resource="d"), Quota.RESOURCES, 2)
    me.ask(control.ResourceDelete(resource="a"), control.Ok)
    me.create("d")


def test_quota_of_cursors() -> None:
    rig = rig_of({Quota.CURSORS: 2})
    me, you = logged_in(rig, "me"), logged_in(rig, "you")
    me.create("a")
    me.ask(control.CursorOpen(group="g", resource="a"), control.CursorOpened)
    me.ask(control.ConnectionReader(resources=["a"], group="h", confirm="full"), control.DataLease)
    above(me, control.CursorOpen(group="i", resource="a"), Quota.CURSORS, 2)
    above(me, control.ConnectionReader(resources=["a"], group="i", confirm="full"), Quota.CURSORS, 2)
    me.ask(control.CursorOpen(group="g", resource="a"), control.CursorOpened)
    you.ask(control.CursorOpen(group="i", resource="a"), control.CursorOpened)
    rig.restart()
    rig.broker.users([user("me", "secret"), user("you", "secret")], rig.now())
    me = logged_in(rig, "me")
    above(me, control.CursorOpen(group="j", resource="a"), Quota.CURSORS, 2)
    me.ask(control.CursorDelete(group="g", resource="a"), control.Ok)
    me.ask(control.CursorOpen(group="j", resource="a"), control.CursorOpened)


def test_quota_of_queues() -> None:
    rig = rig_of({Quota.QUEUES: 1})
    me, you = logged_in(rig, "me", profile="queue"), logged_in(rig, "you", profile="queue")
    me.create("a")
    first = me.ask(control.ConnectionReader(resources=["a"], group="q", confirm="full"), control.DataLease)
    above(me, control.ConnectionReader(resources=["a"], group="r", confirm="full"), Quota.QUEUES, 1)
    you.ask(control.ConnectionReader(resources=["a"], group="r", confirm="full"), control.DataLease)
    rig.sleep(1)
    rig.restart()
    rig.broker.users([user("me", "secret"), user("you", "secret")], rig.now())
    me = logged_in(rig, "me", profile="queue")
    above(me, control.ConnectionReader(resources=["a"], group="s", confirm="full"), Quota.QUEUES, 1)
    me.ask(control.QueueDelete(resource="a", group="q"), control.Ok)
    me.ask(control.ConnectionReader(resources=["a"], group="s", confirm="full"), control.DataLease)
    assert first.lease


def test_quota_of_applications() -> None:
    rig = rig_of({Quota.APPLICATIONS: 2})
    me, you = logged_in(rig, "me"), logged_in(rig, "you")
    me.create("a")
    me.commit("one", 1)
    me.commit("two", 1)
    above(me, control.StageCommit(application="three", version=1, stages=[]), Quota.APPLICATIONS, 2)
    me.commit("two", 2)
    you.commit("three", 1)
    rig.restart()
    rig.broker.users([user("me", "secret"), user("you", "secret")], rig.now())
    me = logged_in(rig, "me")
    above(me, control.StageCommit(application="four", version=1, stages=[]), Quota.APPLICATIONS, 2)
    me.ask(control.StageForget(application="one"), control.Ok)
    me.commit("four", 1)


def test_a_refused_first_commit_does_not_count() -> None:
    rig = rig_of({Quota.APPLICATIONS: 1})
    me = logged_in(rig, "me")
    for _ in range(2):
        assert me.refused(control.StageCommit(application="one", version=1, stages=["none"])).status == 404
    me.commit("two", 1)


def test_a_repeated_lease_request_counts_once() -> None:
    """The 202 was lost: the former lease is replaced, at the quota as well."""
    rig = rig_of({Quota.LEASES: 1})
    me = logged_in(rig, "me")
    me.create("a")
    lost = me.writer("a", request_id="r")
    again = me.writer("a", request_id="r")
    assert [rig.broker.parts.leases.find(x.lease) is not None for x in (lost, again)] == [False, True]
    above(me, control.ConnectionWriter(resources=["a"], request_id="s"), Quota.LEASES, 1)


def test_pending_leases_are_checked_against_the_quota_when_granted() -> None:
    rig = rig_of({Quota.LEASES: 2})
    logged_in(rig, "me").create("a")
    rig.hold(Save)
    names = [f"me.w{number}" for number in range(4)]
    waiting = [
        logged_in(rig, "me").begin(control.ConnectionWriter(resources=["a"], confirm="full", writer=name))
        for name in names
    ]
    rig.let_go()
    outcomes = [outcome(request) for request in waiting]
    assert sum(isinstance(x, control.DataLease) for x in outcomes) == 2
    refused = [x for x in outcomes if isinstance(x, Refused)]
    assert [x.reason for x in refused] == [control.QUOTA] * 2
    assert len(rig.broker.parts.leases) == 2


def test_quota_of_requests_under_way() -> None:
    rig = rig_of({Quota.REQUESTS: 2})
    me, you = logged_in(rig, "me"), logged_in(rig, "you")
    me.create("a")
    state = me.ask(control.ResourceDescribe(), control.DescriptionList).state
    asks = control.ResourceDescribe(resource="a", since=state, wait=20_000)
    waiting = [logged_in(rig, "me").begin(asks) for _ in range(2)]
    above(me, control.ResourceDescribe(), Quota.REQUESTS, 2)
    you.fill("a", [b"x"])
    assert all(request.answered for request in waiting)
    me.ask(control.ResourceDescribe(), control.DescriptionList)


def test_quota_of_waits() -> None:
    rig = rig_of({Quota.WAITS: 2})
    me, you = logged_in(rig, "me"), logged_in(rig, "you")
    me.create("a")
    state = me.ask(control.ResourceDescribe(), control.DescriptionList).state
    asks = control.ResourceDescribe(resource="a", since=state, wait=20_000)
    waiting = [logged_in(rig, "me").begin(asks) for _ in range(2)]
    assert not any(request.answered for request in waiting)
    above(me, asks, Quota.WAITS, 2)
    you.begin(asks)
    me.fill("a", [b"x"])
    assert all(request.answered for request in waiting)
    state = me.ask(control.ResourceDescribe(), control.DescriptionList).state
    assert not me.begin(control.ResourceDescribe(resource="a", since=state, wait=20_000)).answered


def test_quota_of_writer_names() -> None:
    rig = rig_of({Quota.WRITER_NAMES: 2})
    me, you = logged_in(rig, "me"), logged_in(rig, "you")
    me.create("a")
    for name in ("v", "w", "v"):
        me.ask(control.ConnectionWriter(resources=["a"], confirm="full", writer=name), control.DataLease)
    above(me, control.ConnectionWriter(resources=["a"], confirm="full", writer="x"), Quota.WRITER_NAMES, 2)
    you.ask(control.ConnectionWriter(resources=["a"], confirm="full", writer="x"), control.DataLease)
    rig.restart()
    rig.broker.users([user("me", "secret"), user("you", "secret")], rig.now())
    above(
        logged_in(rig, "me"),
        control.ConnectionWriter(resources=["a"], confirm="full", writer="y"),
        Quota.WRITER_NAMES,
        2,
    )
    rig.sleep(broker_limits.WRITER_NAME_IDLE_S + 2 * broker_limits.NAMES_CHECK_S, 300.0)
    logged_in(rig, "me").ask(
        control.ConnectionWriter(resources=["a"], confirm="full", writer="y"), control.DataLease
    )


def test_quota_of_stages() -> None:
    rig = rig_of({Quota.STAGES: 2})
    me, you = logged_in(rig, "me"), logged_in(rig, "you")
    me.create("a")
    stage, _ = me.staged("app", 1, "a", [b"x"]), me.staged("app", 1, "a", [b"y"])
    again = control.ConnectionWriter(
        resources=["a"], confirm="full", stage=control.StageSpec(application="app", version=1)
    )
    above(me, again, Quota.STAGES, 2)
    you.staged("other", 1, "a", [b"z"])
    rig.restart()
    rig.broker.users([user("me", "secret"), user("you", "secret")], rig.now())
    me = logged_in(rig, "me")
    above(me, again, Quota.STAGES, 2)
    me.commit("app", 1, stage)
    me.staged("app", 2, "a", [b"x"])


def test_quota_of_sessions_evicts_the_longest_silent_one() -> None:
    rig = rig_of({Quota.SESSIONS: 2})
    first = logged_in(rig, "me")
    rig.sleep(1)
    second, other = logged_in(rig, "me"), logged_in(rig, "you")
    rig.sleep(1)
    first.create("a")
    third = logged_in(rig, "me")
    assert second.refused(control.ResourceList()).reason == control.NOT_OPEN
    for client in (first, third, other):
        client.ask(control.ResourceList(), control.DescriptionList)


def test_sessions_with_leases_are_not_evicted_and_a_new_session_is_refused() -> None:
    rig = rig_of({Quota.SESSIONS: 2})
    clients = [logged_in(rig, "me") for _ in range(2)]
    clients[0].create("a")
    leases = [client.writer("a") for client in clients]
    with pytest.raises(Refused) as caught:
        login(Client(rig), Credentials("me", "secret"))
    assert (caught.value.status, caught.value.reason) == (403, control.QUOTA)
    assert caught.value.members == {"quota": "sessions", "limit": 2, "used": 2}
    logged_in(rig, "you")
    clients[0].close_lease(leases[0])
    logged_in(rig, "me")


def test_a_session_that_logs_in_again_counts_once() -> None:
    rig = rig_of({Quota.SESSIONS: 1})
    client = logged_in(rig, "me")
    for name in ("me", "you", "me"):
        login(client, Credentials(name, "secret"))
    assert rig.broker.parts.sessions._of_principal.of("me") == 1


def test_a_quota_may_be_raised_for_one_user() -> None:
    rig = rig_of({Quota.LEASES: 1}, you={Quota.LEASES: 2})
    me, you = logged_in(rig, "me"), logged_in(rig, "you")
    me.create("a")
    me.writer("a")
    above(me, control.ConnectionWriter(resources=["a"]), Quota.LEASES, 1)
    you.writer("a")
    you.writer("a")
    above(you, control.ConnectionWriter(resources=["a"]), Quota.LEASES, 2)
