from __future__ import annotations

import logging

import pytest

from mtl.doors.peer_messages import DoorRefusal, peer_message
from mtl.errors import (
    Closed,
    ContentTooLarge,
    FieldError,
    Malformed,
    MtlError,
    OptionError,
    Refused,
    Unreachable,
)
from mtl.wire.control import NOT_AUTHORIZED, READ_ONLY, UNKNOWN_RESOURCE, UNKNOWN_VIRTUAL_HOST


@pytest.mark.parametrize(
    "error",
    [
        DoorRefusal(400, "bad-verb", "no such verb"),
        Malformed("not a number"),
        FieldError("a name of 300 octets"),
        ContentTooLarge(5 << 20, 4 << 20),
    ],
)
def test_errors_of_the_peer_are_sent_to_it_in_full(error: MtlError) -> None:
    assert peer_message(error) == str(error)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (Unreachable("tcp://10.0.0.7:5975", 30.0, "Connection.Open"), "the broker cannot be reached"),
        (Closed("the connection is closed"), "the broker cannot be reached"),
        (OptionError("cannot read the password in /etc/mtl/door.password"), "the broker cannot be reached"),
        (
            Refused(404, UNKNOWN_RESOURCE, "no such resource: 'x'; make it with mtl resource create"),
            "404 unknown-resource",
        ),
        (Refused(403, NOT_AUTHORIZED, "user 'door' has no grant in '/'; `mtl grant` adds one"), "no right"),
        (Refused(404, UNKNOWN_VIRTUAL_HOST, "there is no virtual host '/inner'"), "404 unknown-virtual-host"),
        (Refused(503, READ_ONLY, "/var/lib/mtl is full"), "503 read-only"),
    ],
)
def test_errors_of_the_broker_are_sent_without_endpoint_and_options(error: MtlError, words: str) -> None:
    message = peer_message(error)
    assert words in message
    for secret in ("10.0.0.7", "5975", "/etc", "/var", "door", "mtl grant", "mtl resource", "inner", "retry"):
        assert secret not in message


def test_internal_errors_are_sent_with_their_type_only(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        assert peer_message(KeyError("secret")) == "internal error (KeyError)"
    assert "secret" in caplog.text
