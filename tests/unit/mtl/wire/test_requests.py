from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mtl.errors import FieldError
from mtl.limits import MAX_PATTERN, MAX_RESOURCES_PER_LEASE
from mtl.wire import requests as q
from mtl.wire.replies import Retention, Window

GOLDEN: list[tuple[q.Request, str]] = [
    (
        q.Open(protocol=q.Protocol(), virtual_host="test-env"),
        '{"protocol":{"name":"MTL","version":1},"virtual-host":"test-env"}',
    ),
    (q.Authorize(mechanism="PLAIN", response="AGEAYg=="), '{"mechanism":"PLAIN","response":"AGEAYg=="}'),
    (q.Profile(profile="log", session="t"), '{"session":"t","profile":"log"}'),
    (q.Reader(resources=["a"]), '{"resources":["a"],"confirm":"none"}'),
    (
        q.Reader(
            resources=["a"],
            confirm="full",
            from_="group",
            until=9,
            window=Window(contents=10),
            packed=True,
            group="g",
            holder="h",
            epoch=3,
            incarnation="i",
        ),
        (
            '{"resources":["a"],"confirm":"full","from":"group","until":9,"window":{"contents":10},"packed":true,'
            '"group":"g","holder":"h","epoch":3,"incarnation":"i"}'
        ),
    ),
    (q.Writer(resources=[], confirm="full"), '{"resources":[],"confirm":"full"}'),
    (
        q.Writer(
            resources=["a"],
            packed=True,
            writer="w",
            stage=q.StageSpec(application="q", version=0, id="s"),
            incarnations={"a": "i"},
        ),
        (
            '{"resources":["a"],"confirm":"none","packed":true,"writer":"w","stage":{"application":"q","version":0,'
            '"id":"s"},"incarnations":{"a":"i"}}'
        ),
    ),
    (q.LeaseClose(lease="l"), '{"lease":"l"}'),
    (
        q.ResourceCreate(resource="a", retention=Retention(bytes=1), exist_ok=True),
        '{"resource":"a","durability":"sync","retention":{"bytes":1},"exist-ok":true}',
    ),
    (
        q.ResourceCreate(resource="a", dead_letter="b", max_deliveries=3),
        '{"resource":"a","durability":"sync","dead-letter":"b","max-deliveries":3}',
    ),
    (q.QueueDescribe(resource="a"), '{"resource":"a"}'),
    (q.QueueDelete(group="g", resource="a"), '{"group":"g","resource":"a"}'),
    (q.ResourceList(pattern="a.*"), '{"pattern":"a.*"}'),
    (q.ResourceDescribe(), "{}"),
    (
        q.ResourceDescribe(resources=["a"], after={"a": 4}, wait=250),
        '{"resources":["a"],"after":{"a":4},"wait":250}',
    ),
    (q.ResourceDelete(resource="a", incarnation="i"), '{"resource":"a","incarnation":"i"}'),
    (q.ResourceLocate(resource="a", timestamp=0), '{"resource":"a","timestamp":0}'),
    (
        q.ResourceLocate(resource="a", start=1, contents=5, bytes=6),
        '{"resource":"a","start":1,"contents":5,"bytes":6}',
    ),
    (q.CursorOpen(group="g", resource="a", from_=7), '{"group":"g","resource":"a","from":7}'),
    (q.CursorDescribe(group="g"), '{"group":"g"}'),
    (q.CursorDelete(group="g", resource="a"), '{"group":"g","resource":"a"}'),
    (q.CursorReset(group="g", resource="a", to="latest"), '{"group":"g","resource":"a","to":"latest"}'),
    (
        q.CursorReset(group="g", resource="a", timestamp=7, force=True),
        '{"group":"g","resource":"a","timestamp":7,"force":true}',
    ),
    (
        q.StageCommit(application="q", version=4, stages=["s", "t"], query="u"),
        '{"application":"q","version":4,"stages":["s","t"],"query":"u"}',
    ),
    (q.StageAbort(stages=[]), '{"stages":[]}'),
    (q.StageDescribe(), "{}"),
    (q.StageForget(application="q"), '{"application":"q"}'),
]
"""Every request, and its JSON."""


@pytest.mark.requirement("MTL-15", "MTL-22", "MTL-30", "MTL-35", "MTL-44")
@pytest.mark.parametrize(("request_", "json"), GOLDEN)
def test_requests_and_their_json(request_: q.Request, json: str) -> None:
    assert msgspec.json.encode(request_).decode() == json
    assert msgspec.json.decode(json, type=type(request_)) == request_


@pytest.mark.requirement("MTL-17")
def test_the_registry_holds_every_command_once() -> None:
    assert {type(request) for request, _ in GOLDEN} == set(q.REQUESTS.values())
    for name, request in q.REQUESTS.items():
        family, method = request.command.split(".")
        assert name == request.command.lower()
        assert f"{family}{method}" in {request.__name__, f"Connection{request.__name__}"}


@pytest.mark.requirement("MTL-44")
def test_confirm_is_none_by_default_and_kept_when_it_is_something_else() -> None:
    assert msgspec.json.decode('{"resources":[]}', type=q.Writer).confirm == "none"
    assert msgspec.json.decode('{"resources":[],"confirm":"half"}', type=q.Reader).confirm == "half"


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        (q.Reader, {"resources": [""]}),
        (q.Reader, {"resources": ["a\n"]}),
        (q.Reader, {"resources": ["é" * 128]}),
        (q.Reader, {"resources": [], "group": "\0"}),
        (q.Writer, {"resources": ["a", ""]}),
        (q.Writer, {"resources": [], "writer": "\x7f"}),
        (q.ResourceCreate, {"resource": ""}),
        (q.ResourceCreate, {"resource": "a", "retention": Retention(groups=("\n",))}),
        (q.ResourceDelete, {"resource": "\x85"}),
        (q.ResourceDescribe, {"resource": "a", "pattern": "a"}),
        (q.ResourceDescribe, {"resources": [], "resource": "a"}),
        (q.ResourceLocate, {"resource": "a"}),
        (q.ResourceLocate, {"resource": "a", "timestamp": 1, "start": 1}),
        (q.CursorOpen, {"group": "", "resource": "a"}),
        (q.StageCommit, {"application": "", "version": 1, "stages": []}),
    ],
)
def test_what_a_type_cannot_say_is_checked_at_both_ends(
    kind: type[q.Request], members: dict[str, Any]
) -> None:
    with pytest.raises(FieldError):
        kind(**members)
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(members), type=kind)


@pytest.mark.parametrize(
    ("kind", "json"),
    [
        (q.Open, "{}"),
        (q.Open, '{"protocol":"MTL"}'),
        (q.Open, '{"protocol":{"version":"1"}}'),
        (q.Reader, "{}"),
        (q.Reader, '{"resources":"a"}'),
        (q.Reader, '{"resources":[1]}'),
        (q.Reader, '{"resources":[],"from":"first"}'),
        (q.Reader, '{"resources":[],"from":-1}'),
        (q.Reader, '{"resources":[],"from":true}'),
        (q.Reader, '{"resources":[],"until":9223372036854775808}'),
        (q.Reader, '{"resources":[],"window":{"contents":0}}'),
        (q.Reader, '{"resources":[],"packed":1}'),
        (q.Writer, '{"resources":[],"stage":{"application":"a"}}'),
        (q.ResourceCreate, '{"resource":"a","durability":"ram"}'),
        (q.CursorOpen, '{"group":"g","resource":"a","from":"group"}'),
        (q.ResourceList, '{"pattern":"' + "x" * (MAX_PATTERN + 1) + '"}'),
        (q.Reader, '{"resources":[' + ",".join(['"a"'] * (MAX_RESOURCES_PER_LEASE + 1)) + "]}"),
    ],
)
def test_members_have_types_and_bounds(kind: type[q.Request], json: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json, type=kind)
