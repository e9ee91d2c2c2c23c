from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import msgspec.inspect
import pytest

from mtl.errors import FieldError
from mtl.limits import MAX_RESOURCES_PER_LEASE
from mtl.wire import requests
from mtl.wire.limits import MAX_PATTERN
from mtl.wire.replies import Retention, Window

GOLDEN: list[tuple[requests.Request, str]] = [
    (
        requests.ConnectionOpen(protocol=requests.Protocol(), virtual_host="test-env"),
        '{"protocol":{"name":"MTL","version":1},"virtual-host":"test-env"}',
    ),
    (
        requests.ConnectionAuthorize(mechanism="PLAIN", response="AGEAYg=="),
        '{"mechanism":"PLAIN","response":"AGEAYg=="}',
    ),
    (requests.ConnectionProfile(profile="log", session="t"), '{"session":"t","profile":"log"}'),
    (requests.ConnectionReader(resources=["a"]), '{"resources":["a"],"confirm":"none"}'),
    (
        requests.ConnectionReader(
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
        requests.ConnectionReader(resources=["a"], from_=7, log_epoch="2.0a1b2c3d"),
        '{"resources":["a"],"confirm":"none","from":7,"log-epoch":"2.0a1b2c3d"}',
    ),
    (
        requests.ConnectionWriter(resources=["a"], log_epochs={"a": ("i", "2.0a1b2c3d")}),
        '{"resources":["a"],"confirm":"none","log-epochs":{"a":["i","2.0a1b2c3d"]}}',
    ),
    (requests.ConnectionWriter(resources=[], confirm="full"), '{"resources":[],"confirm":"full"}'),
    (
        requests.ConnectionWriter(
            resources=["a"],
            packed=True,
            writer="w",
            stage=requests.StageSpec(application="q", version=0, id="s"),
            incarnations={"a": "i"},
        ),
        (
            '{"resources":["a"],"confirm":"none","packed":true,"writer":"w","stage":{"application":"q","version":0,'
            '"id":"s"},"incarnations":{"a":"i"}}'
        ),
    ),
    (requests.LeaseClose(lease="l"), '{"lease":"l"}'),
    (
        requests.ResourceCreate(resource="a", retention=Retention(bytes=1), exist_ok=True),
        '{"resource":"a","durability":"sync","retention":{"bytes":1},"exist-ok":true}',
    ),
    (
        requests.ResourceCreate(resource="a", dead_letter="b", max_deliveries=3),
        '{"resource":"a","durability":"sync","dead-letter":"b","max-deliveries":3}',
    ),
    (requests.QueueDescribe(resource="a"), '{"resource":"a"}'),
    (requests.QueueDelete(group="g", resource="a"), '{"group":"g","resource":"a"}'),
    (requests.ResourceList(pattern="a.*"), '{"pattern":"a.*"}'),
    (requests.ResourceList(continue_=["a"]), '{"continue":["a"]}'),
    (requests.ResourceDescribe(), "{}"),
    (
        requests.ResourceDescribe(resources=["a"], missing_ok=True, since="b.4", wait=250),
        '{"resources":["a"],"missing-ok":true,"since":"b.4","wait":250}',
    ),
    (requests.ResourceDescribe(resource="a", history=True), '{"resource":"a","history":true}'),
    (requests.ResourceDelete(resource="a", incarnation="i"), '{"resource":"a","incarnation":"i"}'),
    (requests.ResourceLocate(resource="a", timestamp=0), '{"resource":"a","timestamp":0}'),
    (
        requests.ResourceLocate(resource="a", start=1, contents=5, bytes=6),
        '{"resource":"a","start":1,"contents":5,"bytes":6}',
    ),
    (requests.CursorOpen(group="g", resource="a", from_=7), '{"group":"g","resource":"a","from":7}'),
    (requests.CursorDescribe(group="g"), '{"group":"g"}'),
    (requests.CursorDelete(group="g", resource="a"), '{"group":"g","resource":"a"}'),
    (
        requests.CursorReset(group="g", resource="a", to="latest"),
        '{"group":"g","resource":"a","to":"latest"}',
    ),
    (
        requests.CursorReset(group="g", resource="a", timestamp=7, force=True),
        '{"group":"g","resource":"a","timestamp":7,"force":true}',
    ),
    (
        requests.StageCommit(application="q", version=4, stages=["s", "t"], query="u"),
        '{"application":"q","version":4,"stages":["s","t"],"query":"u"}',
    ),
    (requests.StageAbort(stages=[]), '{"stages":[]}'),
    (requests.StageDescribe(), "{}"),
    (requests.StageForget(application="q"), '{"application":"q"}'),
]
"""Every request, and its JSON."""


@pytest.mark.requirement("MTL-15", "MTL-22", "MTL-30", "MTL-35", "MTL-44")
@pytest.mark.parametrize(("request_", "json"), GOLDEN)
def test_requests_and_their_json(request_: requests.Request, json: str) -> None:
    assert msgspec.json.encode(request_).decode() == json
    assert msgspec.json.decode(json, type=type(request_)) == request_


@pytest.mark.requirement("MTL-17")
def test_the_registry_has_every_command_once() -> None:
    assert {type(request) for request, _ in GOLDEN} == set(requests.REQUESTS.values())
    for name, request in requests.REQUESTS.items():
        family, method = request.command.split(".")
        assert name == request.command.lower()
        assert request.__name__ == family + method


@pytest.mark.requirement("MTL-44")
def test_confirm_defaults_to_none_and_unknown_values_are_kept() -> None:
    assert msgspec.json.decode('{"resources":[]}', type=requests.ConnectionWriter).confirm == "none"
    assert (
        msgspec.json.decode('{"resources":[],"confirm":"half"}', type=requests.ConnectionReader).confirm
        == "half"
    )


@pytest.mark.parametrize(
    ("kind", "members"),
    [
        (requests.ConnectionReader, {"resources": [""]}),
        (requests.ConnectionReader, {"resources": ["a\n"]}),
        (requests.ConnectionReader, {"resources": ["é" * 128]}),
        (requests.ConnectionReader, {"resources": [], "group": "\0"}),
        (requests.ConnectionReader, {"resources": ["a"], "from_": "earliest", "log_epoch": "1.00000000"}),
        (requests.ConnectionReader, {"resources": ["a"], "log_epoch": "1.00000000"}),
        (requests.ResourceLocate, {"resource": "a", "timestamp": 0, "log_epoch": "1.00000000"}),
        (requests.CursorOpen, {"group": "g", "resource": "a", "log_epoch": "1.00000000"}),
        (requests.CursorReset, {"group": "g", "resource": "a", "timestamp": 0, "log_epoch": "1.00000000"}),
        (requests.ConnectionWriter, {"resources": ["a", ""]}),
        (requests.ConnectionWriter, {"resources": [], "writer": "\x7f"}),
        (requests.ResourceCreate, {"resource": ""}),
        (requests.ResourceCreate, {"resource": "a", "retention": Retention(groups=("\n",))}),
        (requests.ResourceDelete, {"resource": "\x85"}),
        (requests.ResourceDescribe, {"resource": "a", "pattern": "a"}),
        (requests.ResourceDescribe, {"resources": [], "resource": "a"}),
        (requests.ResourceLocate, {"resource": "a"}),
        (requests.ResourceLocate, {"resource": "a\n", "start": 1}),
        (requests.ResourceLocate, {"resource": "a", "timestamp": 1, "start": 1}),
        (requests.CursorOpen, {"group": "", "resource": "a"}),
        (requests.CursorReset, {"group": "g", "resource": "", "to": 1}),
        (requests.CursorReset, {"group": "\n", "resource": "a", "to": 1}),
        (requests.StageCommit, {"application": "", "version": 1, "stages": []}),
    ],
)
def test_constraints_beyond_types_are_checked_at_both_ends(
    kind: type[requests.Request], members: dict[str, Any]
) -> None:
    with pytest.raises(FieldError):
        kind(**members)
    sent = {name.rstrip("_").replace("_", "-"): value for name, value in members.items()}
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(msgspec.json.encode(sent), type=kind)


@pytest.mark.parametrize(
    ("kind", "json"),
    [
        (requests.ConnectionOpen, "{}"),
        (requests.ConnectionOpen, '{"protocol":"MTL"}'),
        (requests.ConnectionOpen, '{"protocol":{"version":"1"}}'),
        (requests.ConnectionReader, "{}"),
        (requests.ConnectionReader, '{"resources":"a"}'),
        (requests.ConnectionReader, '{"resources":[1]}'),
        (requests.ConnectionReader, '{"resources":[],"from":"first"}'),
        (requests.ConnectionReader, '{"resources":[],"from":-1}'),
        (requests.ConnectionReader, '{"resources":[],"from":true}'),
        (requests.ConnectionReader, '{"resources":[],"until":9223372036854775808}'),
        (requests.ConnectionReader, '{"resources":[],"window":{"contents":0}}'),
        (requests.ConnectionReader, '{"resources":[],"packed":1}'),
        (requests.ConnectionWriter, '{"resources":[],"stage":{"application":"a"}}'),
        (requests.ResourceCreate, '{"resource":"a","durability":"ram"}'),
        (requests.CursorOpen, '{"group":"g","resource":"a","from":"group"}'),
        (requests.ResourceList, '{"pattern":"' + "x" * (MAX_PATTERN + 1) + '"}'),
        (
            requests.ConnectionReader,
            '{"resources":[' + ",".join(['"a"'] * (MAX_RESOURCES_PER_LEASE + 1)) + "]}",
        ),
    ],
)
def test_members_have_types_and_bounds(kind: type[requests.Request], json: str) -> None:
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


@pytest.mark.parametrize("kind", requests.REQUESTS.values(), ids=lambda kind: kind.command)
def test_every_text_has_a_bound(kind: type[requests.Request]) -> None:
    assert unbounded(msgspec.inspect.type_info(kind), kind.command) == []


@pytest.mark.parametrize(
    ("kind", "json"),
    [
        (requests.StageCommit, '{"application": "a", "version": 1, "stages": [], "query": "%s"}'),
        (requests.ConnectionWriter, '{"resources": [], "writer": "w", "holder": "%s"}'),
        (requests.ConnectionWriter, '{"resources": [], "stage": {"application": "%s", "version": 1}}'),
        (requests.ConnectionReader, '{"resources": ["a"], "group": "g", "holder": "%s"}'),
        (requests.ConnectionAuthorize, '{"mechanism": "SCRAM-SHA-256", "response": "%s"}'),
        (requests.ResourceDescribe, '{"since": "%s", "wait": 1000}'),
        (requests.ResourceDescribe, '{"continue": ["%s"]}'),
    ],
    ids=lambda x: x.__name__ if isinstance(x, type) else "",
)
def test_stored_members_of_a_request_are_bounded(kind: type[requests.Request], json: str) -> None:
    msgspec.json.decode(json % "x", type=kind)
    with pytest.raises(msgspec.ValidationError, match="length"):
        msgspec.json.decode(json % ("x" * 1_000_000), type=kind)


def test_the_groups_of_a_retention_are_bounded() -> None:
    groups = tuple(f"g{n}" for n in range(requests.MAX_RETENTION_GROUPS + 1))
    requests.ResourceCreate(resource="a", retention=Retention(groups=groups[1:]))
    with pytest.raises(FieldError, match="101 groups"):
        requests.ResourceCreate(resource="a", retention=Retention(groups=groups))


def test_stored_names_have_no_control_characters() -> None:
    with pytest.raises(FieldError):
        requests.StageSpec(application="a\n", version=1)
    with pytest.raises(FieldError):
        requests.ConnectionWriter(resources=["a"], writer="w", holder="h\x1b")


@pytest.mark.parametrize(
    "create",
    [
        lambda name: requests.ResourceCreate(resource=name),
        lambda name: requests.ResourceCreate(resource="a", dead_letter=name),
        lambda name: requests.ResourceCreate(resource="a", retention=Retention(groups=(name,))),
        lambda name: requests.ConnectionReader(resources=[name]),
        lambda name: requests.ConnectionReader(resources=["a"], group=name),
        lambda name: requests.ConnectionWriter(resources=[name]),
        lambda name: requests.ConnectionWriter(resources=["a"], writer=name),
        lambda name: requests.StageSpec(application=name, version=1),
        lambda name: requests.CursorOpen(group=name, resource="a"),
        lambda name: requests.StageCommit(application=name, version=1, stages=[]),
    ],
)
def test_new_names_have_visible_characters_only(create: Callable[[str], requests.Request]) -> None:
    create("orders")
    with pytest.raises(FieldError, match=r"invisible character U\+200B"):
        create("or\u200bders")


def test_a_resource_with_an_invisible_name_can_be_described_and_deleted() -> None:
    requests.ResourceDescribe(resource="or\u200bders")
    requests.ResourceDelete(resource="or\u200bders")
