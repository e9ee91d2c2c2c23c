"""How resources are divided over leases."""

from __future__ import annotations

from pyspark_mtl.source.holdings import Holdings
from pyspark_mtl.source.offsets import Position
from tests.support.fake_client import FakeClient, FakeLog

AT = Position("i1", 1)


def holdings(client: FakeClient, group: str | None = None) -> Holdings:
    return Holdings(lambda: client, group, lambda: "me")  # type: ignore[arg-type, return-value]


def names(first: int, count: int) -> list[str]:
    return [f"r{number:05}" for number in range(first, first + count)]


def client_with(count: int) -> FakeClient:
    return FakeClient(logs={name: FakeLog([b""]) for name in names(0, count)})


def test_a_lease_holds_a_thousand_resources() -> None:
    client = client_with(2_001)
    held = holdings(client)
    assert held.hold(dict.fromkeys(names(0, 2_001), AT)) == {}
    assert [len(holder.positions) for holder in client.holders] == [1_000, 1_000, 1]
    held.confirm(dict.fromkeys(names(0, 2_001), Position("i1", 2)))
    assert [(len(holder.confirmed), holder.pings) for holder in client.holders] == [
        (1_000, 1),
        (1_000, 1),
        (1, 1),
    ]


def test_further_resources_fill_the_last_lease() -> None:
    client = client_with(1_001)
    held = holdings(client)
    for first in (0, 600, 1_000):
        held.hold(dict.fromkeys(names(first, min(600, 1_001 - first)), AT))
    assert [(len(holder.positions), holder.requests) for holder in client.holders] == [(1_000, 2), (1, 1)]


def test_a_forgotten_resource_leaves_room() -> None:
    client = client_with(1_001)
    held = holdings(client)
    held.hold(dict.fromkeys(names(0, 1_000), AT))
    held.forget(["r00000", "unknown"])
    held.hold(dict.fromkeys(names(1, 1_000), AT))
    assert [len(holder.positions) for holder in client.holders] == [1_000]
    assert held.incarnation("r00000") is None


def test_refusals_are_returned_and_the_others_held() -> None:
    client = client_with(2)
    held = holdings(client, "g")
    refused = held.hold({"r00000": AT, "missing": AT})
    assert {name: error.reason for name, error in refused.items()} == {"missing": "unknown-resource"}
    assert (held.holding_epoch("r00000"), held.holding_epoch("missing"), held.incarnation("missing")) == (
        7,
        None,
        None,
    )


def test_close_ends_all_leases() -> None:
    client = client_with(1_001)
    held = holdings(client)
    held.hold(dict.fromkeys(names(0, 1_001), AT))
    held.close()
    held.close()
    assert all(holder.closed for holder in client.holders)
