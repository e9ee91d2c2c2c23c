"""The options that a server of RFC 11 only, or the profile `test`, does not have."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from mtl.client.connection import Connection
from mtl.client.settings import Settings
from mtl.errors import OptionError
from mtl.wire import control
from tests.support.memory_broker import RESOURCE, MemoryBroker
from tests.support.texts import in_order

POSITIONED = "start, until, group or packed contents"
NAMED = "names, stages or packed contents"
QUEUED = "names of queues or a start"
STAGE = control.StageSpec(application="app", version=0)

Opens = Callable[[Connection], object]

EXTENDED: dict[str, tuple[Opens, str]] = {
    "packed-reader": (lambda c: c.reader(RESOURCE, packed=True), POSITIONED),
    "start": (lambda c: c.reader(RESOURCE, start=1), POSITIONED),
    "group": (lambda c: c.reader(RESOURCE, group="g"), POSITIONED),
    "until": (lambda c: c.reader(RESOURCE, until=2), POSITIONED),
    "packed-writer": (lambda c: c.writer(RESOURCE, packed=True), NAMED),
    "stage": (lambda c: c.writer(RESOURCE, stage=STAGE), NAMED),
    "name": (lambda c: c.writer(RESOURCE, name="n"), NAMED),
}
QUEUES: dict[str, tuple[Opens, str]] = {
    "queue": (lambda c: c.consumer(RESOURCE, queue="q"), QUEUED),
    "start-of-a-queue": (lambda c: c.consumer(RESOURCE, start="latest"), QUEUED),
}


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("option", EXTENDED)
def test_the_profile_test_has_no_extensions_at_any_server(option: str) -> None:
    opens, unknown = EXTENDED[option]
    with (
        Connection(Settings("tcp://memory:1", profile="Test")) as connection,
        pytest.raises(OptionError) as refused,
    ):
        opens(connection)
    assert str(refused.value) == f'profile "Test" has no {unknown}'


@pytest.mark.usefixtures("connection")
@pytest.mark.parametrize("option", EXTENDED | QUEUES)
def test_a_server_that_gives_no_session_token_has_no_extensions(
    option: str, memory_broker: MemoryBroker
) -> None:
    opens, unknown = (EXTENDED | QUEUES)[option]
    memory_broker.answers[control.ConnectionOpen] = lambda: control.encode_reply(
        201, control.Ready(profiles=["log"])
    )
    with (
        Connection(Settings("tcp://memory:1", profile="log")) as connection,
        pytest.raises(OptionError) as refused,
    ):
        opens(connection)
    assert re.search(in_order("tcp://memory:1", "RFC 11", "log", unknown), str(refused.value))


@pytest.mark.usefixtures("connection")
def test_leases_without_these_options_are_requested_in_every_profile(memory_broker: MemoryBroker) -> None:
    with Connection(Settings("tcp://memory:1", profile="test")) as connection:
        connection.reader(RESOURCE).close()
        connection.writer(RESOURCE).close()
    assert confirmations(memory_broker) == ["none", "none"]


@pytest.mark.usefixtures("connection")
def test_leases_without_these_options_are_requested_of_every_server(memory_broker: MemoryBroker) -> None:
    memory_broker.answers[control.ConnectionOpen] = lambda: control.encode_reply(
        201, control.Ready(profiles=["log"])
    )
    with Connection(Settings("tcp://memory:1", profile="log")) as connection:
        connection.reader(RESOURCE).close()
        connection.writer(RESOURCE).close()
        connection.consumer(RESOURCE).close()
    assert confirmations(memory_broker) == ["full", "full", "full"]


def confirmations(broker: MemoryBroker) -> list[str | None]:
    """The confirmation models of the requested leases."""
    return [
        request.confirm
        for request in broker.asked
        if isinstance(request, control.ConnectionReader | control.ConnectionWriter)
    ]
