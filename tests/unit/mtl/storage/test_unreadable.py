"""Damaged records: requests that depend on one are refused with the reason, others are served, no state is reset."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mtl.errors import Refused
from mtl.log.manifest import MANIFEST
from mtl.storage.records import (
    AnyRecord,
    ApplicationRecord,
    CursorRecord,
    QueueRecord,
    RecordDamage,
    StageRecord,
    UserRecord,
    WriterRecord,
    record_key,
)
from mtl.storage.unreadable import Unreadable
from mtl.wire import control
from tests.support.commits import commit, staged
from tests.support.core import ROOT, Client, Rig
from tests.unit.mtl.broker.queues.test_consumers import bodies, consumer, deliveries_of

GROUP = control.ConnectionReader(resources=["a"], from_="group", group="g", holder="driver", confirm="full")
OPEN = control.CursorOpen(group="g", resource="a")
DESCRIBE = control.CursorDescribe(group="g", resource="a")
RESET = control.CursorReset(group="g", resource="a", to="earliest")
DELETE = control.CursorDelete(group="g", resource="a")
MEMBER = control.ConnectionReader(resources=["a"], from_=1, group="g", epoch=1, confirm="full")
NAMED = control.ConnectionWriter(resources=["a"], writer="name", confirm="full")
NAMED_AGAIN = control.ConnectionWriter(resources=["a"], writer="name", holder="h", epoch=1, confirm="full")
FORGET = control.StageForget(application="app")


def refusal_of(client: Client, request: control.Request) -> None:
    refused = client.refused(request)
    assert (refused.status, refused.reason) == (503, control.STORAGE), refused
    assert "cannot be read" in refused.message
    assert "mtl recover" in refused.message


@pytest.fixture
def served(rig: Rig, client: Client) -> Client:
    """One record of each kind: a resource, a group at half of it, a writer name, a commit, a queue, a stage."""
    client.create("a")
    client.fill("a", bodies(8))
    flow = client.flow(client.ask(GROUP, control.DataLease))
    flow.contents()
    flow.confirm(4)
    client.ask(NAMED, control.DataLease)
    client.ask(commit(1, staged(client, 1, {"a": [b"x"]})), control.Committed)
    queue = consumer(rig.client("queue"), "a")
    queue.contents()
    queue.confirm(4)
    rig.sleep(1.0)
    return client


def damaged(rig: Rig, kind: type[AnyRecord], how: str) -> Client:
    """A client of the next broker, whose only record of a kind is damaged or lost."""
    (key,) = [key for name, key in rig.store.rows if name == kind.kind]
    rig.stop()
    rig.store.damage(kind.kind, key) if how == "damaged" else rig.store.lose(kind.kind, key)
    rig.start()
    return rig.client()


Case = tuple[type[AnyRecord], list[control.Request]]
CASES: list[Case] = [
    (CursorRecord, [GROUP, OPEN, DESCRIBE, RESET, MEMBER]),
    (WriterRecord, [NAMED, NAMED_AGAIN]),
    (ApplicationRecord, [commit(1), commit(2)]),
]


@pytest.mark.parametrize("how", ["damaged", "lost"])
@pytest.mark.parametrize(("kind", "requests"), CASES, ids=lambda x: getattr(x, "kind", ""))
def test_only_requests_that_depend_on_a_damaged_record_are_refused(
    rig: Rig, served: Client, how: str, kind: type[AnyRecord], requests: list[control.Request]
) -> None:
    client = damaged(rig, kind, how)
    for request in requests:
        refusal_of(client, request)
    for other, harmless in CASES:
        if other is not kind:
            client.ask(harmless[0], control.Committed if other is ApplicationRecord else control.DataLease)
    assert len(client.read("a")) == 9


@pytest.mark.parametrize("how", ["damaged", "lost"])
def test_a_queue_with_a_damaged_record_is_not_reset(rig: Rig, served: Client, how: str) -> None:
    damaged(rig, QueueRecord, how)
    client = rig.client("queue")
    refusal_of(client, control.ConnectionReader(resources=["a"], confirm="full"))
    if how == "damaged":
        client.ask(control.QueueDelete(resource="a", group="default"), control.Ok)
        assert len(deliveries_of(consumer(client, "a").contents())) == 9
    else:
        refusal_of(client, control.QueueDelete(resource="a", group="default"))


def test_other_keys_are_served_if_the_damaged_key_is_known(rig: Rig, served: Client) -> None:
    client = damaged(rig, CursorRecord, "damaged")
    client.ask(control.CursorOpen(group="h", resource="a"), control.CursorOpened)
    client = damaged(rig, ApplicationRecord, "damaged")
    client.ask(commit(1, application="other"), control.Committed)


def test_no_new_key_is_created_if_the_damaged_key_is_unknown(rig: Rig, served: Client) -> None:
    client = damaged(rig, CursorRecord, "lost")
    refusal_of(client, control.CursorOpen(group="h", resource="a"))
    refusal_of(client, DELETE)


@pytest.mark.parametrize(
    ("kind", "delete", "again"),
    [
        (CursorRecord, DELETE, lambda client: client.ask(OPEN, control.CursorOpened)),
        (ApplicationRecord, FORGET, lambda client: client.ask(commit(1), control.Committed)),
    ],
)
def test_an_explicit_delete_resolves_the_damage(
    rig: Rig,
    served: Client,
    kind: type[AnyRecord],
    delete: control.Request,
    again: Callable[[Client], object],
) -> None:
    client = damaged(rig, kind, "damaged")
    client.ask(delete, control.Ok)
    again(client)
    assert not rig.store.damages


def test_an_unreadable_stage_is_not_reported_as_unknown(rig: Rig, served: Client) -> None:
    stage = staged(served, 2, {"a": [b"y"]})
    rig.stop()
    rig.store.damage(StageRecord.kind, stage)
    rig.disk.flip(f"{ROOT}/stages/{stage}/0/{MANIFEST}", 9)  # otherwise it is created again
    rig.start()
    refusal_of(rig.client(), commit(2, stage))


def test_retention_stops_at_a_group_with_an_unreadable_record(rig: Rig, client: Client) -> None:
    client.create("b", retention=control.Retention(contents=1, groups=("g",)))
    client.fill("b", bodies(8))
    client.ask(control.CursorOpen(group="g", resource="b", from_=3), control.CursorOpened)
    rig.sleep(1.0)
    client = damaged(rig, CursorRecord, "damaged")
    rig.sleep(120.0)
    assert client.describe("b").earliest == 1


def test_a_user_with_a_damaged_record_is_refused() -> None:
    unreadable = Unreadable([RecordDamage("user", "etl", "its checksum does not fit")])
    unreadable.check(UserRecord, "other", "user 'other'")
    with pytest.raises(Refused, match="user 'etl' cannot be read"):
        unreadable.check(UserRecord, "etl", "user 'etl'")


def test_a_damage_of_unknown_kind_affects_every_kind() -> None:
    unreadable = Unreadable([RecordDamage(None, None, "lost")])
    for kind in (CursorRecord, WriterRecord):
        assert unreadable.reason(kind, record_key("/", "a")) == "lost"
        assert not unreadable.has_key(kind, record_key("/", "a"))
