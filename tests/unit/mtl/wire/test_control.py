from __future__ import annotations

from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.errors import ContentTooLarge, DataLoss, Fenced, FieldError, Malformed, Refused
from mtl.limits import MAX_CONTROL_FRAME
from mtl.wire import control

TEXT = st.text(st.characters(codec="utf-8"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)
MEMBERS = sorted(
    {"from", "until", "resources", "resource", "confirm", "protocol", "window", "stages", "version"}
)
NAMES = st.sampled_from([request.command for request in control.REQUESTS.values()] + ["No.Such"])

DEEP = [b"[" * 100_000, b'{"protocol":' * 100_000, b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}"]
"""Octets that exhaust the stack of a decoder that does not count."""

# --- requests -----------------------------------------------------------------------------------------------

RFC_REQUESTS = [
    (
        "Connection.Open",
        """{
    "protocol": {
        "name": "MTL",
        "version": 1
    },
    "virtual-host": "test-env"
}""",
        control.ConnectionOpen(protocol=control.Protocol(name="MTL", version=1), virtual_host="test-env"),
    ),
    (
        "Connection.Authorize",
        """{
    "mechanism" : "mechanism name",
    "response" : "BASE64-encoded blob"
}""",
        control.ConnectionAuthorize(mechanism="mechanism name", response="BASE64-encoded blob"),
    ),
    (
        "Connection.Profile",
        '{\n    "profile" : "profile name"\n}',
        control.ConnectionProfile(profile="profile name"),
    ),
    (
        "Connection.Reader",
        '{\n    "resources": [ "resource name", "resource name"],\n    "confirm": "none | full"\n}',
        control.ConnectionReader(resources=["resource name", "resource name"], confirm="none | full"),
    ),
    (
        "Connection.Writer",
        '{\n    "resources": [ "resource name", "resource name"],\n    "confirm": "none | full"\n}',
        control.ConnectionWriter(resources=["resource name", "resource name"], confirm="none | full"),
    ),
]
"""The RFC's examples to the letter, the dots of its lists apart."""


@pytest.mark.requirement("MTL-08", "MTL-15", "MTL-22", "MTL-30", "MTL-35", "MTL-44")
@pytest.mark.parametrize(("name", "json", "expected"), RFC_REQUESTS)
def test_requests_of_the_rfc_are_decoded(name: str, json: str, expected: control.Request) -> None:
    assert control.decode_request([name.encode(), json.encode()]) == expected
    assert control.decode_request(control.encode_request(expected)) == expected


@pytest.mark.requirement("MTL-19")
@pytest.mark.parametrize("name", [b"connection.profile", b"CONNECTION.PROFILE", b"Connection.Profile"])
def test_command_names_are_case_insensitive(name: bytes) -> None:
    assert control.decode_request([name, b'{"profile":"log"}']) == control.ConnectionProfile(profile="log")


@pytest.mark.requirement("MTL-09")
@given(st.dictionaries(TEXT.filter(lambda name: name not in {"profile", "session"}), JSON, max_size=4))
def test_unknown_members_are_ignored(members: dict[str, Any]) -> None:
    body = msgspec.json.encode({**members, "profile": "log"})
    assert control.decode_request([b"Connection.Profile", memoryview(body)]) == control.ConnectionProfile(
        profile="log"
    )


@pytest.mark.requirement("MTL-50")
@pytest.mark.parametrize("frames", [[], [b"Connection.Open"], [b"", b"Connection.Open", b"{}"]])
def test_another_number_of_frames_is_malformed(frames: list[bytes]) -> None:
    with pytest.raises(Malformed, match="frames"):
        control.decode_request(frames)
    with pytest.raises(Malformed, match="frames"):
        control.decode_reply(frames, control.ConnectionOpen)


NO_JSON = [
    b"",
    b"{",
    b"{}{}",
    b"hello",
    b'{"profile":1, x}',
    b"{'profile':'log'}",
    b'{"profile":"\xff"}',
    b'{"other":"\xff","profile":"log"}',
    b'{"profile":NaN}',
    b'{"profile":-Infinity}',
    b"\xef\xbb\xbf{}",
    b'{"profile":"\\ud800}',
]

READ_BY_NOBODY_HERE = [
    b'{"profile":"\\ud800"}',
    b'{"profile":"log","other":"\\udfff"}',
    b"[" * 100_000,
    b'{"a":' * 100_000,
    b'{"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
]


@pytest.mark.requirement("MTL-51")
@pytest.mark.parametrize("name", [b"Connection.Profile", b"Resource.Describe", b"No.Such"])
@pytest.mark.parametrize("body", NO_JSON, ids=range(len(NO_JSON)))
def test_a_body_that_is_not_json_is_malformed_for_any_command(name: bytes, body: bytes) -> None:
    with pytest.raises(Malformed):
        control.decode_request([name, body])


@pytest.mark.requirement("MTL-52")
@pytest.mark.parametrize("name", [b"Connection.Profile", b"Resource.Describe", b"No.Such"])
@pytest.mark.parametrize("body", READ_BY_NOBODY_HERE, ids=range(len(READ_BY_NOBODY_HERE)))
def test_json_that_cannot_be_decoded_is_refused(name: bytes, body: bytes) -> None:
    with pytest.raises(Refused) as caught:
        control.decode_request([name, body])
    assert (caught.value.status, caught.value.reason) == (400, control.BAD_ARGUMENTS)
    assert len(caught.value.message) < 1_000


def test_a_command_name_that_is_not_utf8_is_malformed() -> None:
    with pytest.raises(Malformed, match="UTF-8"):
        control.decode_request([b"\xff", b"{}"])


@pytest.mark.requirement("MTL-52")
def test_an_unknown_command_is_refused() -> None:
    with pytest.raises(Refused, match=r"No\.Such") as caught:
        control.decode_request([b"No.Such", b'{"number":1e999}'])
    assert (caught.value.status, caught.value.reason) == (501, control.UNKNOWN_COMMAND)


@pytest.mark.requirement("MTL-52")
@pytest.mark.parametrize(
    ("name", "body", "message"),
    [
        (b"Connection.Open", b"[]", "Expected `object`"),
        (b"Connection.Open", b"null", "Expected `object`"),
        (b"Connection.Open", b"{}", "protocol"),
        (b"connection.open", b'{"protocol":{"version":"1"}}', r"\$\.protocol\.version"),
        (b"Connection.Reader", b'{"resources":["a\\u0007"]}', "control characters"),
        (b"Connection.Reader", b'{"resources":[],"from":"first"}', r"\$\.from"),
        (b"Resource.Locate", b'{"resource":"a"}', "one of timestamp and start"),
    ],
)
def test_wrong_members_are_refused_with_a_reason(name: bytes, body: bytes, message: str) -> None:
    with pytest.raises(Refused, match=message) as caught:
        control.decode_request([name, body])
    assert (caught.value.status, caught.value.reason) == (400, control.BAD_ARGUMENTS)


@pytest.mark.requirement("MTL-52")
def test_a_request_has_a_largest_size_at_both_ends() -> None:
    with pytest.raises(Refused, match="octets") as caught:
        control.decode_request([b"Connection.Profile", b'{"profile":"' + b"x" * MAX_CONTROL_FRAME + b'"}'])
    assert (caught.value.status, caught.value.reason) == (413, control.TOO_LARGE)
    with pytest.raises(ContentTooLarge):
        control.encode_request(control.ConnectionProfile(profile="x" * MAX_CONTROL_FRAME))


@given(NAMES, st.dictionaries(st.sampled_from(MEMBERS), JSON) | JSON)
def test_any_json_is_a_request_or_refused(name: str, body: object) -> None:
    with suppress(Refused):
        control.decode_request([name.encode(), msgspec.json.encode(body)])


@given(NAMES.map(str.encode) | st.binary(max_size=20), st.binary())
def test_any_octets_are_a_request_refused_or_malformed(name: bytes, body: bytes) -> None:
    with suppress(Malformed, Refused):
        control.decode_request([name, body])


@given(st.sampled_from(RFC_REQUESTS), st.data())
def test_a_damaged_request_is_valid_refused_or_malformed(
    row: tuple[str, str, Any], data: st.DataObject
) -> None:
    name, json, _ = row
    body = bytearray(json.encode())
    for _ in range(data.draw(st.integers(1, 3))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    with suppress(Malformed, Refused):
        control.decode_request([name.encode(), bytes(body)])


# --- replies ------------------------------------------------------------------------------------------------

RFC_REPLIES: list[tuple[bytes, str, type[control.Request], control.Reply]] = [
    (
        b"201",
        '{\n    "status": "Ready",\n    "profiles": [ "profile name", "profile name"]\n}',
        control.ConnectionOpen,
        control.Ready(profiles=["profile name", "profile name"]),
    ),
    (
        b"401",
        '{\n    "status": "Unauthorized",\n    "mechanisms": [ "mechanism name"]\n}',
        control.ConnectionReader,
        control.Unauthorized(mechanisms=["mechanism name"]),
    ),
    (
        b"402",
        '{\n "status": "Challenged",\n "mechanism": "mechanism name",\n "challenge" : "BASE64-encoded blob"\n}',
        control.ConnectionAuthorize,
        control.Challenged(mechanism="mechanism name", challenge="BASE64-encoded blob"),
    ),
    (b"200", '{\n    "status": "OK"\n}', control.ConnectionProfile, control.Ok()),
    (
        b"202",
        '{\n    "status": "Data Lease",\n    "port": 5976,\n    "lease" : "data lease"\n}',
        control.ConnectionWriter,
        control.DataLease(port=5976, lease="data lease"),
    ),
]
"""The RFC's examples, with the comma that its 202 lacks."""


@pytest.mark.requirement("MTL-16", "MTL-18", "MTL-26", "MTL-27", "MTL-32", "MTL-37", "MTL-48")
@pytest.mark.parametrize(("code", "json", "request_", "expected"), RFC_REPLIES)
def test_replies_of_the_rfc_are_decoded(
    code: bytes, json: str, request_: type[control.Request], expected: control.Reply
) -> None:
    assert control.decode_reply([code, json.encode()], request_) == expected
    assert control.decode_reply(control.encode_reply(int(code), expected), request_) == expected
    assert expected.code == int(code)


def test_every_reply_type_has_the_status_of_its_request() -> None:
    for request in control.REQUESTS.values():
        assert request.replies
        for status, reply in request.replies.items():
            assert reply.code == status


@pytest.mark.requirement("MTL-49")
def test_a_bare_refusal_of_an_rfc_server() -> None:
    with pytest.raises(Refused) as caught:
        control.decode_reply([b"501", b'{"status": "Not implemented"}'], control.ConnectionReader)
    refused = caught.value
    assert (refused.status, refused.reason, refused.message) == (501, control.UNSUPPORTED, "Not implemented")


@pytest.mark.requirement("MTL-49")
@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (400, control.BAD_ARGUMENTS),
        (403, control.NOT_AUTHORIZED),
        (404, control.UNKNOWN_RESOURCE),
        (413, control.TOO_LARGE),
        (418, "refused"),
        (500, control.INTERNAL),
        (503, control.OVERLOADED),
    ],
)
def test_a_status_without_a_reason_has_its_usual_one(status: int, reason: str) -> None:
    with pytest.raises(Refused) as caught:
        control.decode_reply([b"%d" % status, b"{}"], control.ConnectionReader)
    assert (caught.value.status, caught.value.reason) == (status, reason)


@pytest.mark.requirement("MTL-52")
def test_an_encoded_refusal_is_decoded_with_its_members() -> None:
    refused = Refused(404, control.UNKNOWN_RESOURCE, "no such resource: a", missing=["a"], last_version=3)
    frames = control.encode_refusal(refused)
    assert frames == [
        b"404",
        (
            b'{"missing":["a"],"last-version":3,"status":"Not Found","reason":"unknown-resource",'
            b'"message":"no such resource: a"}'
        ),
    ]
    with pytest.raises(Refused) as caught:
        control.decode_reply(frames, control.ResourceDescribe)
    back = caught.value
    assert type(back) is Refused
    assert (back.status, back.reason, back.message, back.members) == (
        404,
        control.UNKNOWN_RESOURCE,
        "no such resource: a",
        {"missing": ["a"], "last_version": 3},
    )


@pytest.mark.requirement("MTL-52")
def test_a_refusal_without_a_text_for_its_status_is_complete() -> None:
    assert control.encode_refusal(Refused(418, "teapot")) == [
        b"418",
        b'{"status":"Refused","reason":"teapot","message":""}',
    ]


def test_fenced_and_data_loss_are_decoded_to_their_types() -> None:
    with pytest.raises(Fenced, match="another driver") as fenced:
        control.decode_reply(
            control.encode_refusal(Fenced("another driver holds it", epoch=4)), control.ConnectionReader
        )
    assert fenced.value.members == {"epoch": 4}
    loss = DataLoss("a", 3, 9)
    with pytest.raises(DataLoss) as caught:
        control.decode_reply(control.encode_refusal(loss), control.ConnectionReader)
    back = caught.value
    assert (back.resource, back.first, back.end, back.count, back.message) == ("a", 3, 9, 6, loss.message)
    assert (back.resume, loss.members.get("from")) == (9, None)
    with pytest.raises(DataLoss) as caught:
        control.decode_reply(control.encode_refusal(DataLoss("a", 3, 9, resume=3)), control.ConnectionReader)
    assert caught.value.resume == 3


@pytest.mark.parametrize(
    "members", [{}, {"resource": "a", "first": 1}, {"resource": "a", "first": True, "end": 3}]
)
def test_data_loss_without_its_range_is_a_plain_refusal(members: dict[str, Any]) -> None:
    body = msgspec.json.encode(
        {"status": "Conflict", "reason": control.DATA_LOSS, "message": "gone", **members}
    )
    with pytest.raises(Refused) as caught:
        control.decode_reply([b"409", body], control.ConnectionReader)
    assert type(caught.value) is Refused
    assert caught.value.members == members


@pytest.mark.requirement("MTL-16")
@pytest.mark.parametrize(
    "code", [b"", b"20", b"2000", b"2x0", b"199", b"600", b"-20", b" 200", "٢٠٠".encode(), b"\xff"]
)
def test_a_status_is_three_digits_from_200_to_599(code: bytes) -> None:
    with pytest.raises(Malformed):
        control.decode_reply([code, b'{"status":"OK"}'], control.ConnectionProfile)


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (b"200", b"{"),
        (b"200", b"[]"),
        (b"201", b'{"profiles":[]}'),
        (b"302", b"{}"),
        (b"401", b"{}"),
        (b"404", b"[]"),
        (b"404", b"no"),
        *[(b"200", deep) for deep in DEEP],
        *[(b"404", deep) for deep in DEEP],
    ],
    ids=range(13),
)
def test_a_reply_of_another_type_is_malformed(code: bytes, body: bytes) -> None:
    with pytest.raises(Malformed):
        control.decode_reply([code, body], control.ConnectionProfile)


@pytest.mark.parametrize(
    ("code", "body", "request_", "expected"),
    [
        (b"200", b'{"status":1}', control.ConnectionProfile, control.Ok()),
        (b"200", b'{"status":1,"stage":null}', control.LeaseClose, control.LeaseClosed()),
        (
            b"201",
            b'{"profiles":["a"],"boot":7,"heartbeat":"5","user":{},"session":"t"}',
            control.ConnectionOpen,
            control.Ready(profiles=["a"], session="t"),
        ),
        (
            b"202",
            b'{"port":1,"lease":"l","from":-1,"until":7,"history":[[1,"x"]],"window":[],"last":{"a":-1}}',
            control.ConnectionReader,
            control.DataLease(port=1, lease="l", until=7),
        ),
        (b"401", b'{"mechanisms":[],"status":{}}', control.ResourceList, control.Unauthorized(mechanisms=[])),
    ],
)
def test_optional_members_of_another_type_count_as_absent(
    code: bytes, body: bytes, request_: type[control.Request], expected: control.Reply
) -> None:
    assert control.decode_reply([code, body], request_) == expected


@pytest.mark.parametrize(
    ("code", "body", "request_", "named"),
    [
        (b"201", b'{"profiles":"a"}', control.ConnectionOpen, "profiles"),
        (b"201", b'{"boot":7}', control.ConnectionOpen, "profiles"),
        (b"202", b'{"port":65536,"lease":"l"}', control.ConnectionReader, "port"),
        (b"202", b'{"port":1,"lease":7,"boot":7}', control.ConnectionReader, "lease"),
        (b"200", b'{"sequence":-1}', control.ResourceLocate, "sequence"),
        (b"200", b'{"sequence":1,"bytes":"many"}', control.ResourceLocate, "bytes"),
        (b"200", b'{"already":"no"}', control.StageCommit, "already"),
        (b"200", b'{"resources":[{"resource":7,"incarnation":""}]}', control.ResourceList, "resource"),
    ],
)
def test_a_member_that_is_needed_is_named(
    code: bytes, body: bytes, request_: type[control.Request], named: str
) -> None:
    with pytest.raises(Malformed, match=f"{request_.command}: .*{named}"):
        control.decode_reply([code, body], request_)


def test_a_refusal_may_have_any_reason_and_message() -> None:
    with pytest.raises(Refused) as caught:
        control.decode_reply([b"404", b'{"reason":1,"message":[],"status":{}}'], control.ResourceList)
    assert (caught.value.reason, caught.value.message) == (control.UNKNOWN_RESOURCE, "")


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (control.CursorDescribe(group=b"g"), TypeError),  # type: ignore[arg-type]
        (control.ResourceList(pattern=7), TypeError),  # type: ignore[arg-type]
        (control.StageDescribe(application=["a"]), TypeError),  # type: ignore[arg-type]
        ("Resource.List", TypeError),
        (control.ResourceList(pattern="x" * 100_000), FieldError),
        (control.ResourceDescribe(wait=-1), FieldError),
        (control.ConnectionReader(resources=["a"], from_="first"), FieldError),  # type: ignore[arg-type]
    ],
)
def test_a_request_with_a_wrong_member_is_an_error(request_: control.Request, error: type[Exception]) -> None:
    with pytest.raises(error):
        control.check_request(request_)


def test_every_request_of_the_rfc_is_right() -> None:
    control.check_request(control.ConnectionOpen(protocol=control.Protocol()))
    control.check_request(
        control.ConnectionWriter(resources=["a"], stage=control.StageSpec(application="a", version=1))
    )


def test_a_reply_that_is_too_large_is_a_refusal() -> None:
    resources = [
        control.Description(resource="x" * 250, incarnation="i", known_earliest=1, known_next=1)
    ] * 4_000
    frames = control.encode_reply(200, control.DescriptionList(resources=resources))
    with pytest.raises(Refused, match="fewer") as caught:
        control.decode_reply(frames, control.ResourceList)
    assert (caught.value.status, caught.value.reason) == (413, control.TOO_LARGE)
    with pytest.raises(Malformed, match="octets"):
        control.decode_reply([b"200", b" " * MAX_CONTROL_FRAME + b"{}"], control.ConnectionProfile)


@pytest.mark.parametrize("status", [0, 100, 199, 600, 1000])
def test_encoding_an_unknown_status_is_an_error(status: int) -> None:
    assert [control.encode_reply(known, control.Ok())[0] for known in (200, 599)] == [b"200", b"599"]
    with pytest.raises(ValueError, match="status"):
        control.encode_reply(status, control.Ok())


@given(
    st.sampled_from([b"200", b"201", b"401", b"402", b"404", b"409"]) | st.binary(max_size=4),
    st.binary() | JSON,
)
def test_any_octets_are_a_reply_refused_or_malformed(code: bytes, body: object) -> None:
    frames = [code, body if isinstance(body, bytes) else msgspec.json.encode(body)]
    for request in (
        control.ConnectionOpen,
        control.ConnectionAuthorize,
        control.ConnectionReader,
        control.ResourceList,
        control.StageDescribe,
    ):
        with suppress(Malformed, Refused):
            assert isinstance(control.decode_reply(frames, request), control.Reply)


@given(
    st.dictionaries(TEXT | st.sampled_from(["self", "status", "reason", "message", "args"]), JSON, max_size=5)
)
def test_any_object_is_a_refusal_or_malformed(body: dict[str, Any]) -> None:
    with pytest.raises((Refused, Malformed)):
        control.decode_reply([b"409", msgspec.json.encode(body)], control.ConnectionReader)


def test_control_characters_of_a_broker_do_not_reach_an_exception() -> None:
    """A terminal that prints the exception must not execute them."""
    body = msgspec.json.encode({"reason": "a\x1b[2J", "message": "b\x1b]0;c\x07\u202e\nd"})
    with pytest.raises(Refused) as caught:
        control.decode_reply([b"403", body], control.ResourceList)
    assert str(caught.value) == "403 a\\x1b[2J: b\\x1b]0;c\\x07\\u202e\nd"
