"""One client that publishes single contents and one that reads the durable contents, compared with a raw forwarder,
and with one that syncs before it forwards.

The clients of the row with the target are plain clients of RFC 11, only sockets, as the forwarder's clients are; the
extra cost of our own client is a separate row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from benchmarks.bench import Bench
from benchmarks.measure import Peer, Row, Sample, Subject, compare
from benchmarks.roles import Role, together
from benchmarks.workloads.drain import SIZES
from mtl.wire.commands import Content, encode
from mtl.wire.fields import EMPTY

RAW = "raw pyzmq forwarder, not durable"
DURABLE = "raw pyzmq forwarder that syncs first"
OF_RAW = 0.8


def plain(bench: Bench) -> list[Row]:
    """Contents per second, from the first that is sent to the last that is read."""
    return [row for octets in SIZES for row in _plain(bench, octets)]


def _plain(bench: Bench, octets: int) -> list[Row]:
    count = bench.plan.amount(short=200_000, full=1_000_000)
    rows = []
    for title, clients, target in (("", _rfc, OF_RAW), (", our client", _library, None)):
        subject = Subject("plain", f"plain publish and read, {octets} B{title}", "contents/s")
        peers = [
            Peer(RAW, partial(_raw, octets, count), target),
            Peer(DURABLE, partial(_raw, octets, count, durable=str(bench.place / "forwarded"))),
        ]
        rows += compare(subject, partial(_ours, clients, bench, octets, count), peers, bench.plan.rounds)
    return rows


Roles = tuple[tuple[str, dict[str, object]], tuple[str, dict[str, object]]]


def _ours(clients: Callable[[str, str, int, int], Roles], bench: Bench, octets: int, count: int) -> Sample:
    with bench.resources() as names:
        read, published = together(*clients(bench.endpoint, names[0], octets, count))
    assert read["count"] == count
    return Sample(count / (read["ended"] - published["began"]))


def _rfc(endpoint: str, resource: str, octets: int, count: int) -> Roles:
    to = {"endpoint": endpoint, "resource": resource, "count": count}
    return ("rfc_read", to), ("rfc_publish", {**to, "octets": octets})


def _library(endpoint: str, resource: str, octets: int, count: int) -> Roles:
    reading = {"endpoint": endpoint, "resource": resource, "count": count, "packed": False}
    publishing = {"endpoint": endpoint, "resources": [resource], "octets": octets, "count": count}
    return ("read", reading), ("publish", publishing)


def _raw(octets: int, count: int, durable: str = "") -> Sample:
    header = header_of(octets)
    with Role("durable_forwarder", target=durable) if durable else Role("forwarder") as forwarder:
        port = forwarder.ready()["port"]
        forwarder.go()
        publishing = ("raw_publish", {"port": port, "header": header, "octets": octets, "count": count})
        read, published = together(("raw_read", {"port": port, "count": count}), publishing)
    return Sample(count / (read["ended"] - published["began"]))


def header_of(octets: int) -> str:
    """The header frame of such a content, in hexadecimal."""
    header, _ = encode(Content(1, f"bench-{0:08x}", EMPTY, bytes(octets)))
    return header.hex()
