from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mtl.errors import Refused
from mtl.wire import replies

STOPPED = replies.Description(resource="a", incarnation="i", state="stopped", trouble="no space left")
"""A resource whose log did not open."""

GOLDEN: list[tuple[replies.Body, str]] = [
    (replies.Ok(), '{"status":"OK"}'),
    (replies.Ready(profiles=["log", "test"]), '{"status":"Ready","profiles":["log","test"]}'),
    (
        replies.Ready(profiles=[], session="s", boot="b", max_content=1, max_pack=2, heartbeat=5.0),
        '{"status":"Ready","profiles":[],"session":"s","boot":"b","max-content":1,"max-pack":2,"heartbeat":5.0}',
    ),
    (replies.Unauthorized(mechanisms=["PLAIN"]), '{"status":"Unauthorized","mechanisms":["PLAIN"]}'),
    (
        replies.Challenged(mechanism="M", challenge="Yg=="),
        '{"status":"Challenged","mechanism":"M","challenge":"Yg=="}',
    ),
    (replies.DataLease(port=1, lease="l"), '{"status":"Data Lease","port":1,"lease":"l","packed":false}'),
    (
        replies.DataLease(
            port=5976,
            lease="l",
            packed=True,
            from_=1,
            until=9,
            window=replies.Window(contents=1, bytes=2),
            incarnation="i",
            earliest=1,
            next=7,
            position=3,
            epoch=2,
        ),
        (
            '{"status":"Data Lease","port":5976,"lease":"l","packed":true,"from":1,"until":9,"window":{"contents":1,'
            '"bytes":2},"incarnation":"i","earliest":1,"next":7,"position":3,"epoch":2}'
        ),
    ),
    (
        replies.DataLease(
            port=0, endpoint="ipc:///x", lease="l", last={"a": 4}, incarnations={"a": "i"}, stage="s", epoch=1
        ),
        (
            '{"status":"Data Lease","port":0,"lease":"l","endpoint":"ipc:///x","packed":false,"incarnations":{"a":"i"},'
            '"last":{"a":4},"epoch":1,"stage":"s"}'
        ),
    ),
    (
        replies.DataLease(
            port=1,
            lease="l",
            history=((1, "1.0000000a"), (7, "2.0000000b")),
            log_epochs={"a": ("i", "2.0000000b")},
        ),
        (
            '{"status":"Data Lease","port":1,"lease":"l","packed":false,'
            '"history":[[1,"1.0000000a"],[7,"2.0000000b"]],'
            '"log-epochs":{"a":["i","2.0000000b"]}}'
        ),
    ),
    (replies.LeaseClosed(), '{"status":"OK"}'),
    (
        replies.LeaseClosed(stage=replies.StageSealed(stage="s", contents={"a": 2}, bytes=10)),
        '{"status":"OK","stage":{"stage":"s","contents":{"a":2},"bytes":10}}',
    ),
    (
        replies.ResourceCreated(
            resource=replies.Description(
                resource="a", incarnation="i", known_earliest=1, known_next=1, bytes=0, contents=0
            )
        ),
        (
            '{"status":"OK","resource":{"resource":"a","incarnation":"i","earliest":1,"next":1,"bytes":0,"contents":0,'
            '"durability":"sync","state":"serving"}}'
        ),
    ),
    (
        replies.DescriptionList(resources=[STOPPED]),
        (
            '{"status":"OK","resources":[{"resource":"a","incarnation":"i","durability":"sync","state":"stopped",'
            '"trouble":"no space left"}]}'
        ),
    ),
    (
        replies.DescriptionList(
            resources=[
                replies.Description(
                    resource="a",
                    incarnation="i",
                    known_earliest=2,
                    known_next=5,
                    bytes=640,
                    contents=3,
                    oldest_time=1,
                    newest_time=2,
                    retention=replies.Retention(hard_bytes=5, groups=("g",), age=0.5),
                )
            ]
        ),
        (
            '{"status":"OK","resources":[{"resource":"a","incarnation":"i","earliest":2,"next":5,"bytes":640,"contents":3,'
            '"oldest-time":1,"newest-time":2,"durability":"sync","retention":{"age":0.5,"groups":["g"],"hard-bytes":5},'
            '"state":"serving"}]}'
        ),
    ),
    (replies.Located(sequence=4), '{"status":"OK","sequence":4,"match":true}'),
    (replies.Located(sequence=4, bytes=9), '{"status":"OK","sequence":4,"match":true,"bytes":9}'),
    (
        replies.Located(sequence=4, timestamp=7, match=False),
        '{"status":"OK","sequence":4,"timestamp":7,"match":false}',
    ),
    (replies.CursorOpened(position=1, created=True), '{"status":"OK","position":1,"created":true}'),
    (
        replies.CursorList(
            cursors=[
                replies.CursorInfo(
                    group="g",
                    resource="a",
                    incarnation="i",
                    position=1,
                    next=2,
                    behind=1,
                    bytes_behind=0,
                    seconds_behind=0.0,
                )
            ]
        ),
        (
            '{"status":"OK","cursors":[{"group":"g","resource":"a","incarnation":"i","position":1,"next":2,"behind":1,'
            '"bytes-behind":0,"seconds-behind":0.0,"held":false,"epoch":0}]}'
        ),
    ),
    (
        replies.CursorList(
            cursors=[
                replies.CursorInfo(
                    group="g",
                    resource="a",
                    incarnation="i",
                    position=5,
                    next=2,
                    behind=0,
                    bytes_behind=0,
                    seconds_behind=0.0,
                    log_epoch="1.0000000a",
                    lost=replies.Lost(first=2, end=5),
                )
            ]
        ),
        (
            '{"status":"OK","cursors":[{"group":"g","resource":"a","incarnation":"i","position":5,"next":2,"behind":0,'
            '"bytes-behind":0,"seconds-behind":0.0,"held":false,"epoch":0,"log-epoch":"1.0000000a","lost":{"first":2,'
            '"end":5}}]}'
        ),
    ),
    (replies.CursorWasReset(position=3, before=9), '{"status":"OK","position":3,"before":9}'),
    (
        replies.Committed(
            already=True, resources={"a": replies.Published(first=1, contents=2)}, digest={"rows": "2"}
        ),
        '{"status":"OK","already":true,"resources":{"a":{"first":1,"contents":2}},"digest":{"rows":"2"}}',
    ),
    (
        replies.StageList(
            stages=[replies.StageInfo(stage="s", application="q", version=3)],
            applications=[replies.ApplicationInfo(application="q", version=2)],
        ),
        (
            '{"status":"OK","stages":[{"stage":"s","application":"q","version":3,"state":"open","contents":{},"bytes":0}],'
            '"applications":[{"application":"q","version":2,"resources":{},"replays":0}]}'
        ),
    ),
]
"""Every reply, and its JSON. What the RFC's clients rely on is in it although it is a default."""


@pytest.mark.requirement("MTL-16", "MTL-26", "MTL-27", "MTL-32", "MTL-37", "MTL-48")
@pytest.mark.parametrize(("body", "json"), GOLDEN)
def test_replies_and_their_json(body: replies.Body, json: str) -> None:
    assert msgspec.json.encode(body).decode() == json
    assert msgspec.json.decode(json, type=type(body)) == body


def test_an_unknown_position_raises_the_cause() -> None:
    for position in ("earliest", "next"):
        with pytest.raises(Refused, match=r"503 storage.*no space left"):
            getattr(STOPPED, position)
    assert (STOPPED.known_earliest, STOPPED.known_next, STOPPED.contents) == (None, None, None)


@pytest.mark.requirement("MTL-48")
def test_members_missing_in_a_reply_of_the_rfc_are_not_granted() -> None:
    lease = msgspec.json.decode(
        '{"status":"Data Lease","port":5555,"lease":"data lease"}', type=replies.DataLease
    )
    assert (lease.packed, lease.window, lease.from_, lease.incarnation) == (False, None, None, None)


@pytest.mark.requirement("MTL-09")
def test_unknown_members_are_ignored() -> None:
    assert msgspec.json.decode('{"status":"Fine","later":[{"x":1}]}', type=replies.Ok) == replies.Ok(
        status="Fine"
    )


def test_defaults_are_not_shared() -> None:
    first, other = replies.Committed(), replies.Committed()
    first.resources["a"] = replies.Published(first=1, contents=1)
    assert other.resources == {}


@pytest.mark.parametrize(
    "retention", [{"bytes": 0}, {"age": 0}, {"contents": -1}, {"groups": [""]}, {"bytes": 1 << 63}]
)
def test_a_retention_that_keeps_no_contents_is_invalid(retention: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(retention, replies.Retention)
