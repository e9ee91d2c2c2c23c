"""RFC 11 and PROTOCOL.md on the wire, by a client without code of the project: contents in both directions."""

from __future__ import annotations

import pytest

from mtl.testing import RunningBroker
from tests.support.minimal_client import (
    CONTENT,
    DISMISS,
    LEASE,
    PING,
    PONG,
    REJECT,
    RESPONSE,
    SUMMON,
    MinimalClient,
    earliest,
    minimal_client,
    u64,
    written,
)


@pytest.mark.requirement("MTL-14", "MTL-55")
def test_after_the_lease_either_end_sends_commands_until_the_connection_is_closed(
    client: MinimalClient,
) -> None:
    """The connection outlives its leases: it is still answered when they are closed."""
    client.ask("Resource.Create", resource="either")
    reading = client.granted("Reader", resources=["either"], confirm="none")
    flow = client.connect(reading["port"])
    flow.summon("either", code=b"403")
    flow.lease(reading["lease"])
    flow.summon("either")
    for number in range(1, 4):
        other = written(
            client, "either", *[b"%d" % n for n in range(1, number + 1)]
        )  # numbers of its own lease
        assert [flow.read()[3] for _ in range(number)] == [b"%d" % n for n in range(1, number + 1)]
        flow.send(PING)  # after the broker has sent unasked, the client does
        assert flow.receive() == (PONG, b"")
        other.quiet()
    assert client.ask("Lease.Close", lease=reading["lease"])[0] == 200
    flow.summon("either", code=b"403")


@pytest.mark.requirement("MTL-14", "MTL-62", "MTL-110", "MTL-111")
def test_misframed_and_unknown_commands_are_ignored(client: MinimalClient) -> None:
    flow = written(client, "survived")
    for frames in ([b""], [b"\x05"], [b"a", b"b", b"c"], [b"\xff" * 100, b""], [b"", b"", b"", b""]):
        flow.dealer.send_multipart(frames)
    flow.quiet()


@pytest.mark.requirement("MTL-06", "MTL-41", "MTL-47", "MTL-84", "MTL-85")
def test_each_direction_of_a_connection_is_confirmed_as_its_lease_says(client: MinimalClient) -> None:
    client.ask("Resource.Create", resource="both")
    reading = client.granted("Reader", resources=["both"], confirm="none")
    writing = client.granted("Writer", resources=["both"], confirm="full")
    flow = client.connect(reading["port"])
    flow.lease(reading["lease"])
    flow.lease(writing["lease"])
    flow.summon("both")
    for number in range(1, 4):
        flow.content(number, b"%d" % number)
        received = {flow.receive()[0][:1] for _ in range(2)}  # in either order
        assert received == {b"\x05", b"\x06"}
    flow.quiet()


@pytest.mark.requirement("MTL-85")
def test_without_confirmation_no_confirms_are_sent(client: MinimalClient) -> None:
    client.ask("Resource.Create", resource="unconfirmed")
    reader = client.lease("Reader", resources=["unconfirmed"], confirm="none")
    reader.summon("unconfirmed")
    writer = client.lease("Writer", resources=["unconfirmed"], confirm="none")
    writer.content(17, b"a")  # numbers mean nothing here
    writer.content(3, b"b")
    assert [reader.read()[3] for _ in range(2)] == [b"a", b"b"]
    reader.confirm(1)
    reader.reject(2)
    reader.quiet()
    writer.quiet()


@pytest.mark.requirement("MTL-60", "MTL-64", "MTL-112")
def test_without_a_lease_commands_get_403_or_no_answer(client: MinimalClient) -> None:
    lease = client.granted("Writer", resources=[], confirm="full")
    flow = client.connect(lease["port"])
    flow.summon("a", code=b"403")
    flow.dismiss("a", code=b"403")
    flow.lease("0" * 32, code=b"403")
    flow.send(PING)
    flow.content(1, b"dropped")
    flow.lease(lease["lease"])  # the next command: nothing came before it
    flow.quiet()


@pytest.mark.requirement("MTL-65", "MTL-66", "MTL-81")
def test_commands_are_pipelined(client: MinimalClient) -> None:
    """A Lease, a Summon, a Dismiss and a Summon, all before any Response."""
    written(client, "pipelined", b"x")
    lease = client.granted("Reader", resources=["pipelined"], confirm="full", **earliest())
    flow = client.connect(lease["port"])
    asked = [flow.ask(LEASE, lease["lease"]), flow.ask(SUMMON, "pipelined")]
    for sequence in asked:
        flow.responded(sequence, b"200")
    assert flow.read()[3] == b"x"


@pytest.mark.requirement("MTL-68", "MTL-77", "MTL-81", "MTL-82")
def test_contents_are_sent_between_the_responses_to_summon_and_dismiss(client: MinimalClient) -> None:
    writer = written(client, "gated", b"1")
    reader = client.lease("Reader", resources=["gated"], confirm="none", **earliest())
    reader.quiet()  # there is a content, and no Summon
    reader.summon("gated")
    assert reader.read()[3] == b"1"
    reader.dismiss("gated")
    writer.content(2, b"2")
    writer.await_confirm(2)
    reader.quiet()
    reader.summon("gated")
    assert reader.read()[3] == b"2"


@pytest.mark.requirement("MTL-77", "MTL-82")
@pytest.mark.parametrize("confirm", ["none", "full"])
def test_a_dismiss_ends_a_stream_whose_queue_is_full(client: MinimalClient, confirm: str) -> None:
    """Contents queued for the reader are withdrawn before the Response, and sent after the next Summon."""
    name, size, count = f"stream-{confirm}", 16_384, 1_000
    bodies = [b"%d" % n + bytes(size) for n in range(1, count + 1)]
    written(client, name, *bodies)
    reader = client.lease("Reader", resources=[name], confirm=confirm, hwm=1, **earliest())
    reader.summon(name)
    received = [reader.read()[0] for _ in range(10)]
    dismissed = reader.ask(DISMISS, name)
    while (command := reader.receive())[0][:1] == CONTENT:
        received.append(int.from_bytes(command[0][1:9], "big"))
    assert command == (RESPONSE + u64(dismissed), b"200")
    reader.quiet()
    assert len(received) < count
    reader.confirm(received[-1], multiple=True)  # or the window stays as full as it is
    reader.summon(name)
    while len(received) < count:
        received.append(reader.read()[0])
        reader.confirm(received[-1])
    assert received == list(range(1, count + 1))


@pytest.mark.requirement("MTL-69", "MTL-70", "MTL-71", "MTL-74", "MTL-75", "MTL-76")
def test_impossible_summons_and_dismisses_are_refused(client: MinimalClient) -> None:
    writer = written(client, "summoned")
    flow = client.lease("Reader", resources=["summoned"], confirm="none")
    flow.dismiss("summoned", code=b"400")
    flow.summon("another", code=b"400")
    flow.summon("summoned")
    flow.summon("summoned", code=b"400")
    flow.dismiss("another", code=b"400")
    flow.dismiss("summoned")
    flow.dismiss("summoned", code=b"400")
    writer.summon("summoned", code=b"400")  # it has no lease to read


@pytest.mark.requirement("MTL-46", "MTL-79", "MTL-112")
@pytest.mark.parametrize("resources", [["east", "west"], []])
def test_a_writer_of_several_resources_names_the_resource_of_each_content(
    client: MinimalClient, resources: list[str]
) -> None:
    for name in ("east", "west"):
        client.ask("Resource.Create", **{"resource": name, "exist-ok": True})
    writer = client.lease("Writer", resources=resources, confirm="full")
    writer.content(1, b"to the east", "east")
    writer.content(2, b"to whom?")
    writer.content(3, b"to the west", "west")
    sent_commands: list[tuple[bytes, bytes]] = []
    while not sent_commands or sent_commands[-1] != (b"\x06" + u64(3) + b"\x01", b""):
        sent_commands.append(writer.receive())
    assert (REJECT + u64(2) + b"\0\0", b"") in sent_commands
    if not resources:  # a resource created after the lease counts as well
        client.ask("Resource.Create", resource="later")
        writer.content(4, b"to the newest", "later")
        assert writer.confirmed() == 4


@pytest.mark.requirement("MTL-46", "MTL-83", "MTL-114")
def test_contents_for_a_reader_of_all_resources_have_the_resource_name(running: RunningBroker) -> None:
    with minimal_client(running.endpoint, "test") as client:
        reader = client.lease("Reader", resources=[], confirm="none")
        reader.summon("another", code=b"400")
        reader.summon("resource")
        writer = client.lease("Writer", resources=[], confirm="none")
        writer.content(1, b"no name is needed where there is one")
        writer.content(2, b"elsewhere", "another")
        assert reader.read()[1] == "resource"
        assert writer.receive() == (REJECT + u64(2) + b"\0\0", b"")


@pytest.mark.requirement("MTL-92", "MTL-93", "MTL-97", "MTL-98")
def test_confirms_and_rejects_get_no_answer(client: MinimalClient) -> None:
    written(client, "settled", b"1", b"2", b"3", b"4")
    reader = client.lease("Reader", resources=["settled"], confirm="full", **earliest())
    reader.summon("settled")
    for _ in range(4):
        reader.read()
    for settle in (reader.confirm, reader.reject):
        settle(1)
        settle(1)  # settled before
        settle(2, multiple=True)
        settle(0, multiple=True)
        settle(99)
        settle(99, multiple=True)
    reader.quiet()


@pytest.mark.requirement("MTL-88", "MTL-90", "MTL-91", "MTL-94", "MTL-95", "MTL-96")
def test_a_lease_that_moves_redelivers_unsettled_contents_in_order(client: MinimalClient) -> None:
    written(client, "moved", *(b"%d" % n for n in range(1, 8)))
    lease = client.granted("Reader", resources=["moved"], confirm="full", **earliest())
    first = client.connect(lease["port"])
    first.lease(lease["lease"])
    first.summon("moved")
    assert [first.read()[0] for _ in range(7)] == [1, 2, 3, 4, 5, 6, 7]
    first.confirm(2, multiple=True)
    first.reject(3)
    first.reject(4, recycle=True)
    first.quiet()  # all of that was taken in
    second = client.connect(lease["port"])
    second.lease(lease["lease"])
    second.quiet()  # nothing is summoned on a new flow
    second.summon("moved")
    received = [second.read() for _ in range(4)]
    assert [(x[0], x[3]) for x in received] == [(n, b"%d" % n) for n in (4, 5, 6, 7)]
    first.send(PING)  # commands of the former flow are dropped; the lease does not move
    second.quiet()


def test_the_next_peer_with_an_identity_gets_nothing_of_the_former_one(client: MinimalClient) -> None:
    writer = written(client, "private")
    lease = client.granted("Reader", resources=["private"], confirm="none", **earliest())
    former = client.connect(lease["port"], identity=b"announced")
    former.lease(lease["lease"])
    former.summon("private")
    former.quiet()
    former.dealer.close()
    for attempt in range(1, 21):
        other = client.connect(lease["port"], identity=b"announced")
        writer.content(attempt, b"for the former peer")
        writer.await_confirm(attempt)
        asked = other.ask(LEASE, "of nobody")
        if other.dealer.poll(1_000):  # otherwise the identity was not free yet
            other.responded(asked, b"403")
            return
        other.dealer.close()
    pytest.fail("the identity of a closed connection was never free")
