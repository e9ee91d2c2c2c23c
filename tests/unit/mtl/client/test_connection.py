from __future__ import annotations

import threading
from dataclasses import replace

import pytest

import mtl
from mtl.client.connection import Connection
from mtl.client.settings import Settings
from mtl.errors import Closed, OptionError, Refused, Unreachable
from mtl.wire import control
from tests.support.memory_broker import RESOURCE, MemoryBroker


def test_connect_returns_a_ready_connection_or_raises(
    connection: Connection, memory_broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mtl.connect("tcp://memory:1") as connected:
        assert connected.ready().profiles == ["log", "queue", "test"]
        assert connected.endpoint == "tcp://memory:1"
    memory_broker.silent = True
    with pytest.raises(Unreachable):
        mtl.connect("tcp://memory:1", request_timeout=0.1, retry_deadline=0.2)
    memory_broker.silent = False
    memory_broker.answers[control.ConnectionProfile] = lambda: control.encode_reply(
        400, {"reason": control.UNKNOWN_PROFILE, "status": "", "message": ""}
    )
    with pytest.raises(OptionError, match="no profile"):
        mtl.connect("tcp://memory:1", profile="nonsense")


def test_a_reader_in_the_queue_profile_is_refused(connection: Connection) -> None:
    with (
        Connection(Settings("tcp://memory:1", profile="Queue")) as queues,
        pytest.raises(OptionError, match="use consumer"),
    ):
        queues.reader(RESOURCE)


def test_a_request_returns_the_answer_or_raises(connection: Connection, memory_broker: MemoryBroker) -> None:
    assert connection.request(control.StageAbort(stages=[])) == control.Ok()
    memory_broker.answers[control.StageAbort] = lambda: control.encode_reply(
        403, {"reason": "no", "status": "", "message": "never"}
    )
    with pytest.raises(Refused, match="never"):
        connection.request(control.StageAbort(stages=[]))


def test_each_reader_and_writer_borrows_a_session_and_returns_it(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    def opened() -> int:
        return sum(isinstance(asked, control.ConnectionOpen) for asked in memory_broker.asked)

    connection.ready()
    with connection.reader(RESOURCE, packed=False), connection.writer(RESOURCE):
        assert opened() == 3
    with connection.reader(RESOURCE, packed=False), connection.writer(RESOURCE):
        assert opened() == 3
    assert sum(isinstance(asked, control.LeaseClose) for asked in memory_broker.asked) == 4


def test_a_long_poll_does_not_delay_other_requests(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    connection.ready()
    asked = threading.Event()

    def never() -> list[bytes]:
        memory_broker.silent = True
        asked.set()
        return control.encode_reply(503, {"reason": control.OVERLOADED, "status": "", "message": ""})

    memory_broker.answers[control.ResourceDescribe] = never
    errors: list[Unreachable] = []

    def poll() -> None:
        try:
            connection.describe(["a"], since="b.1", wait=0.5)
        except Unreachable as error:
            errors.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    assert asked.wait(10)
    memory_broker.silent = False
    assert connection.request(control.StageAbort(stages=[])) == control.Ok()
    memory_broker.silent = True
    thread.join(20)
    assert len(errors) == 1
    assert not connection._sessions._lent  # its session is there for the next one
    memory_broker.silent = False


def test_a_watch_waits_for_the_requested_time(connection: Connection, memory_broker: MemoryBroker) -> None:
    released = threading.Event()

    def later() -> list[bytes]:
        assert released.wait(10)
        return control.encode_reply(200, {"resources": []})

    memory_broker.answers[control.ResourceDescribe] = later
    watch = connection.watch(["a"], since="b.1", wait=5)
    assert watch.news(0.01) is None
    released.set()
    assert watch.news(10) == {}
    assert watch.news(0) == {}
    assert not connection._sessions._lent


@pytest.mark.parametrize(
    ("profile", "options"),
    [
        ("test", {"start": 1}),
        ("test", {"packed": True}),
        ("test", {"group": "g"}),
        ("test", {"until": 9}),
        ("log", {"holding_epoch": 1}),
    ],
)
def test_readers_refuse_invalid_options(
    connection: Connection, profile: str, options: dict[str, object]
) -> None:
    other = Connection(Settings("tcp://memory:1", profile=profile))
    with pytest.raises(OptionError):
        other.reader(RESOURCE, **options)  # type: ignore[arg-type]
    other.close()


@pytest.mark.parametrize(
    ("profile", "options"),
    [
        ("test", {"packed": True}),
        ("test", {"name": "me"}),
        ("log", {"name": "me", "stage": control.StageSpec(application="a", version=1)}),
    ],
)
def test_writers_refuse_invalid_options(
    connection: Connection, profile: str, options: dict[str, object]
) -> None:
    other = Connection(Settings("tcp://memory:1", profile=profile))
    with pytest.raises(OptionError):
        other.writer(RESOURCE, **options)  # type: ignore[arg-type]
    other.close()


def test_default_lease_requests_of_readers_and_writers(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    connection.reader(RESOURCE, packed=False).close()
    connection.reader(RESOURCE, packed=False, group="g").close()
    connection.writer(RESOURCE).close()
    readers = [asked for asked in memory_broker.asked if isinstance(asked, control.ConnectionReader)]
    assert [(asked.from_, asked.confirm, asked.holder is not None) for asked in readers] == [
        ("earliest", "full", False),
        ("group", "full", True),
    ]
    [writer] = [asked for asked in memory_broker.asked if isinstance(asked, control.ConnectionWriter)]
    assert writer.confirm == "full"
    assert writer.writer is not None


def test_a_refused_lease_is_raised_and_its_session_reused(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    missing = {"reason": control.UNKNOWN_RESOURCE, "status": "", "message": "", "missing": ["nowhere"]}
    memory_broker.answers[control.ConnectionReader] = lambda: control.encode_reply(404, missing)
    for _ in range(3):
        with pytest.raises(Refused, match="unknown-resource"):
            connection.reader("nowhere", packed=False)
    opened = sum(isinstance(asked, control.ConnectionOpen) for asked in memory_broker.asked)
    assert opened == 2, "the connection's own session, and one for leases"


def test_close_closes_all_leases_and_reports_unconfirmed_contents(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    reader = connection.reader(RESOURCE, packed=False)
    writer = connection.writer(RESOURCE)
    memory_broker.holding = True
    writer.send(b"x")
    with pytest.raises(Unreachable):
        connection.close()
    for use in (reader.next, writer.flush, connection.ready):
        with pytest.raises(Closed):
            use()
    connection.close()


@pytest.mark.parametrize("profile", ["log", "test"])
def test_a_closed_connection_opens_no_writer(connection: Connection, profile: str) -> None:
    connection.settings = replace(connection.settings, profile=profile)
    connection.close()
    with pytest.raises(Closed):
        connection.writer(RESOURCE)


def test_an_error_of_the_block_is_not_hidden_by_unconfirmed_contents(
    connection: Connection, memory_broker: MemoryBroker
) -> None:
    memory_broker.holding = True
    with pytest.raises(ZeroDivisionError):
        fail_within(connection)


def fail_within(connection: Connection) -> None:
    with connection:
        connection.writer(RESOURCE).send(b"x")
        raise ZeroDivisionError
