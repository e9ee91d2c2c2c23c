from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import msgspec.inspect
import pytest

from mtl.errors import FieldError
from mtl.limits import MAX_RESOURCES_PER_LEASE
from mtl.wire import requests as q
from mtl.wire.limits import MAX_PATTERN
from mtl.wire.replies import Retention, Window

GOLDEN: list[tuple[q.Request, str]] = [
    (
        q.ConnectionOpen(protocol=q.Protocol(), virtual_host="test-env"),
        '{"protocol":{"name":"MTL","version":1},"virtual-host":"test-env"}',
    ),
    (
        q.ConnectionAuthorize(mechanism="PLAIN", response="AGEAYg=="),
        '{"mechanism":"PLAIN","response":"AGEAYg=="}',
    ),
    (q.ConnectionProfile(profile="log", session="t"), '{"session":"t","profile":"log"}'),
    (q.ConnectionReader(resources=["a"]), '{"resources":["a"],"confirm":"none"}'),
    (
        q.ConnectionReader(
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
            request_id="r",
            binding=True,
        ),
        (
            '{"resources":["a"],"confirm":"full","packed":true,"request-id":"r","binding":true,'
            '"from":"group","until":9,"window":{"contents":10},'
            '"group":"g","holder":"h","epoch":3,"incarnation":"i"}'
        ),
    ),
    (
        q.ConnectionReader(resources=["a"], from_=7, log_epoch="2.0a1b2c3d"),
        '{"resources":["a"],"confirm":"none","from":7,"log-epoch":"2.0a1b2c3d"}',
    ),
    (
        q.ConnectionWriter(resources=["a"], log_epochs={"a": ("i", "2.0a1b2c3d")}),
        '{"resources":["a"],"confirm":"none","log-epochs":{"a":["i","2.0a1b2c3d"]}}',
    ),
    (q.ConnectionWriter(resources=[], confirm="full"), '{"resources":[],"confirm":"full"}'),
    (
        q.ConnectionWriter(
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
    (q.ResourceList(continue_=["a"]), '{"continue":["a"]}'),
    (q.ResourceDescribe(), "{}"),
    (
        q.ResourceDescribe(resources=["a"], missing_ok=True, since="b.4", wait=250),
        '{"resources":["a"],"missing-ok":true,"since":"b.4","wait":250}',
    ),
    (q.ResourceDescribe(resource="a", history=True), '{"resource":"a","history":true}'),
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
def test_the_registry_has_every_command_once() -> None:
    assert {type(request) for request, _ in GOLDEN} == set(q.REQUESTS.values())
    for name, request in q.REQUESTS.items():
        family, method = request.command.split(".")
        assert name == request.command.lower()
        assert request.__name__ == family + method


@pytest.mark.requirement("MTL-44")
def test_confirm_defaults_to_none_and_unknown_values_are_kept() -> None:
    assert msgspec.json.decode('{"resources":[]}', type=q.ConnectionWriter).confirm == "none"
    assert msgspec.json.decode('{"resources":[],"confirm":"half"}', type=q.ConnectionReader).confirm == "half"


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        (q.ConnectionReader, {"resources": [""]}),
        (q.ConnectionReader, {"resources": ["a\n"]}),
        (q.ConnectionReader, {"resources": ["é" * 128]}),
        (q.ConnectionReader, {"resources": [], "group": "\0"}),
        (q.ConnectionReader, {"resources": ["a"], "from_": "earliest", "log_epoch": "1.00000000"}),
        (q.ConnectionReader, {"resources": ["a"], "log_epoch": "1.00000000"}),
        (q.ResourceLocate, {"resource": "a", "timestamp": 0, "log_epoch": "1.00000000"}),
        (q.CursorOpen, {"group": "g", "resource": "a", "log_epoch": "1.00000000"}),
        (q.CursorReset, {"group": "g", "resource": "a", "timestamp": 0, "log_epoch": "1.00000000"}),
        (q.ConnectionWriter, {"resources": ["a", ""]}),
        (q.ConnectionWriter, {"resources": [], "writer": "\x7f"}),
        (q.ResourceCreate, {"resource": ""}),
        (q.ResourceCreate, {"resource": "a", "retention": Retention(groups=("\n",))}),
        (q.ResourceDelete, {"resource": "\x85"}),
        (q.ResourceDescribe, {"resource": "a", "pattern": "a"}),
        (q.ResourceDescribe, {"resources": [], "resource": "a"}),
        (q.ResourceLocate, {"resource": "a"}),
        (q.ResourceLocate, {"resource": "a\n", "start": 1}),
        (q.ResourceLocate, {"resource": "a", "timestamp": 1, "start": 1}),
        (q.CursorOpen, {"group": "", "resource": "a"}),
        (q.CursorReset, {"group": "g", "resource": "", "to": 1}),
        (q.CursorReset, {"group": "\n", "resource": "a", "to": 1}),
        (q.StageCommit, {"application": "", "version": 1, "stages": []}),
    ],
)
def test_constraints_beyond_types_are_checked_at_both_ends(
    kind: type[q.Request], members: dict[str, Any]
) -> None:
    with pytest.raises(FieldError):
        kind(**members)
    sent = {name.rstrip("_").replace("_", "-"): value for name, value in members.items()}
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(sent), type=kind)


@pytest.mark.parametrize(
    ("kind", "json"),
    [
        (q.ConnectionOpen, "{}"),
        (q.ConnectionOpen, '{"protocol":"MTL"}'),
        (q.ConnectionOpen, '{"protocol":{"version":"1"}}'),
        (q.ConnectionReader, "{}"),
        (q.ConnectionReader, '{"resources":"a"}'),
        (q.ConnectionReader, '{"resources":[1]}'),
        (q.ConnectionReader, '{"resources":[],"from":"first"}'),
        (q.ConnectionReader, '{"resources":[],"from":-1}'),
        (q.ConnectionReader, '{"resources":[],"from":true}'),
        (q.ConnectionReader, '{"resources":[],"until":9223372036854775808}'),
        (q.ConnectionReader, '{"resources":[],"window":{"contents":0}}'),
        (q.ConnectionReader, '{"resources":[],"packed":1}'),
        (q.ConnectionWriter, '{"resources":[],"stage":{"application":"a"}}'),
        (q.ResourceCreate, '{"resource":"a","durability":"ram"}'),
        (q.CursorOpen, '{"group":"g","resource":"a","from":"group"}'),
        (q.ResourceList, '{"pattern":"' + "x" * (MAX_PATTERN + 1) + '"}'),
        (q.ConnectionReader, '{"resources":[' + ",".join(['"a"'] * (MAX_RESOURCES_PER_LEASE + 1)) + "]}"),
    ],
)
def test_members_have_types_and_bounds(kind: type[q.Request], json: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(json, type=kind)


# --- sizes --------------------------------------------------------------------------------------------------


def unbounded(kind: msgspec.inspect.Type, place: str) -> list[str]:
    """The paths of members with a text of unbounded length."""
    if isinstance(kind, msgspec.inspect.StrType):
        return [] if kind.max_length is not None or kind.pattern is not None else [place]
    if isinstance(kind, msgspec.inspect.UnionType):
        return [x for member in kind.types for x in unbounded(member, place)]
    if isinstance(kind, msgspec.inspect.StructType):
        return [x for f in kind.fields for x in unbounded(f.type, f"{place}.{f.encode_name}")]
    if isinstance(kind, msgspec.inspect.DictType):
        return unbounded(kind.key_type, f"{place}.key") + unbounded(kind.value_type, f"{place}.value")
    if isinstance(kind, msgspec.inspect.TupleType):
        return [x for member in kind.item_types for x in unbounded(member, place)]
    if isinstance(kind, msgspec.inspect.ListType | msgspec.inspect.VarTupleType):
        return unbounded(kind.item_type, f"{place}[]")
    return []


@pytest.mark.parametrize("kind", q.REQUESTS.values(), ids=lambda kind: kind.command)
def test_every_text_has_a_bound(kind: type[q.Request]) -> None:
    assert unbounded(msgspec.inspect.type_info(kind), kind.command) == []


@pytest.mark.parametrize(
    ("kind", "json"),
    [
        (q.StageCommit, '{"application": "a", "version": 1, "stages": [], "query": "%s"}'),
        (q.ConnectionWriter, '{"resources": [], "writer": "w", "holder": "%s"}'),
        (q.ConnectionWriter, '{"resources": [], "stage": {"application": "%s", "version": 1}}'),
        (q.ConnectionReader, '{"resources": ["a"], "group": "g", "holder": "%s"}'),
        (q.ConnectionAuthorize, '{"mechanism": "SCRAM-SHA-256", "response": "%s"}'),
        (q.ResourceDescribe, '{"since": "%s", "wait": 1000}'),
        (q.ResourceDescribe, '{"continue": ["%s"]}'),
    ],
    ids=lambda x: x.__name__ if isinstance(x, type) else "",
)
def test_stored_members_of_a_request_are_bounded(kind: type[q.Request], json: str) -> None:
    msgspec.json.decode(json % "x", type=kind)
    with pytest.raises(msgspec.ValidationError, match="length"):
        msgspec.json.decode(json % ("x" * 1_000_000), type=kind)


def test_the_groups_of_a_retention_are_bounded() -> None:
    groups = tuple(f"g{n}" for n in range(q.MAX_RETENTION_GROUPS + 1))
    q.ResourceCreate(resource="a", retention=Retention(groups=groups[1:]))
    with pytest.raises(FieldError, match="101 groups"):
        q.ResourceCreate(resource="a", retention=Retention(groups=groups))


def test_stored_names_have_no_control_characters() -> None:
    with pytest.raises(FieldError):
        q.StageSpec(application="a\n", version=1)
    with pytest.raises(FieldError):
        q.ConnectionWriter(resources=["a"], writer="w", holder="h\x1b")


@pytest.mark.parametrize(
    "create",
    [
        lambda name: q.ResourceCreate(resource=name),
        lambda name: q.ResourceCreate(resource="a", dead_letter=name),
        lambda name: q.ResourceCreate(resource="a", retention=Retention(groups=(name,))),
        lambda name: q.ConnectionReader(resources=[name]),
        lambda name: q.ConnectionReader(resources=["a"], group=name),
        lambda name: q.ConnectionWriter(resources=[name]),
        lambda name: q.ConnectionWriter(resources=["a"], writer=name),
        lambda name: q.StageSpec(application=name, version=1),
        lambda name: q.CursorOpen(group=name, resource="a"),
        lambda name: q.StageCommit(application=name, version=1, stages=[]),
    ],
)
def test_new_names_have_visible_characters_only(create: Callable[[str], q.Request]) -> None:
    create("orders")
    with pytest.raises(FieldError, match=r"invisible character U\+200B"):
        create("or\u200bders")


def test_a_resource_with_an_invisible_name_can_be_described_and_deleted() -> None:
    q.ResourceDescribe(resource="or\u200bders")
    q.ResourceDelete(resource="or\u200bders")
