"""One client that publishes content by content and one that reads, durable in between, beside a raw forwarder."""

from __future__ import annotations

from functools import partial

from benchmarks.bench import Bench
from benchmarks.measure import Peer, Row, Sample, Subject, compare
from benchmarks.roles import Role, together
from benchmarks.workloads.drain import SIZES
from mtl.wire.commands import Content, encode
from mtl.wire.fields import EMPTY

RAW = "raw pyzmq forwarder, not durable"
OF_RAW = 0.8


def plain(bench: Bench) -> list[Row]:
    """Contents per second, from the first that is sent to the last that is read."""
    return [row for octets in SIZES for row in _plain(bench, octets)]


def _plain(bench: Bench, octets: int) -> list[Row]:
    count = bench.plan.amount(short=200_000, full=1_000_000)
    subject = Subject("plain", f"plain publish and read, {octets} B", "contents/s")
    peer = Peer(RAW, partial(_raw, octets, count), OF_RAW)
    return compare(subject, partial(_ours, bench, octets, count), [peer], bench.plan.rounds)


def _ours(bench: Bench, octets: int, count: int) -> Sample:
    with bench.resources() as names:
        to = {"endpoint": bench.endpoint}
        reading = ("read", {**to, "resource": names[0], "count": count, "packed": False})
        publishing = ("publish", {**to, "resources": names, "octets": octets, "count": count})
        read, published = together(reading, publishing)
    assert read["count"] == count
    return Sample(count / (read["ended"] - published["began"]))


def _raw(octets: int, count: int) -> Sample:
    header = header_of(octets)
    with Role("forwarder") as forwarder:
        port = forwarder.ready()["port"]
        forwarder.go()
        publishing = ("raw_publish", {"port": port, "header": header, "octets": octets, "count": count})
        read, published = together(("raw_read", {"port": port, "count": count}), publishing)
    return Sample(count / (read["ended"] - published["began"]))


def header_of(octets: int) -> str:
    """The header frame of such a content, in hexadecimal."""
    header, _ = encode(Content(1, f"bench-{0:032x}", EMPTY, bytes(octets)))
    return header.hex()
