"""Packs into the broker, compared with the same octets written and synced in the same groups, and with MTL without
syncs. Packs out of the broker, compared with the same mapped octets sent by ZeroMQ alone.

A reader on the broker's machine reads large packs from its files, others receive them through the socket: each has a
row. The receiver reads every octet.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Literal

import mtl
from benchmarks.bench import Bench
from benchmarks.measure import Peer, Row, Sample, Subject, interleave, row
from benchmarks.roles import Role
from benchmarks.workloads.plain import header_of
from mtl.testing import RunningBroker

FILE = "plain file, fdatasync of the same groups"
SUMMED_FILE = "plain file, crc32c and fdatasync of the same groups"
UNSYNCED = "the same, durability os"
RAW = "raw pyzmq, the same mapped octets"
SUMMED = "raw pyzmq, the same mapped octets and their crc32c"
OF_LIMIT = 0.9
SIZES = {100: 10_000, 1024: 4_000}
"""Octets of a content, and contents of a pack: as Spark's sink sends them, within the largest pack."""


def ingest(bench: Bench) -> list[Row]:
    """Octets of contents per second, until the last is confirmed."""
    rows = []
    for octets, pack in SIZES.items():
        count = _count(bench, octets, pack)
        subject = Subject("packed-ingest", f"packed ingest, {octets} B", "MB/s")
        with bench.own_broker() as broker:
            written: list[Path] = []
            ours = partial(_publish, broker, octets, pack, count, written)
            # The limit writes the octets that ours wrote just before, so their order is fixed.
            files = {
                FILE: partial(_write, bench, written, octets * count),
                SUMMED_FILE: partial(_write, bench, written, octets * count, summed=True),
            }
            unsynced = partial(_publish, broker, octets, pack, count, [], durability="os")
            sides = {"ours": partial(_beside, ours, files), UNSYNCED: unsynced}
            samples = interleave(sides, bench.plan.rounds)
        rows.append(_paired(subject, Peer(FILE, None, OF_LIMIT), samples["ours"]))
        rows.append(_paired(subject, Peer(SUMMED_FILE, None), samples["ours"]))
        synced = [Sample(sample.value) for sample in samples["ours"]]
        rows.append(row(subject, Peer(UNSYNCED, None), synced, samples[UNSYNCED]))
    return rows


def delivery(bench: Bench) -> list[Row]:
    """Octets of contents per second, from the request to the last pack."""
    rows = []
    for octets, pack in SIZES.items():
        count = _count(bench, octets, pack)
        subjects = {
            local: Subject("packed-delivery", f"packed delivery {how}, {octets} B", "MB/s")
            for how, local in (("out of the broker's files", True), ("through the socket", False))
        }
        with bench.own_broker() as broker:
            written: list[Path] = []
            _publish(broker, octets, pack, count, written)
            name = _names(broker)[0]
            sides = {
                **{
                    subject.title: partial(_read, broker, name, octets, count, local_reads=local)
                    for local, subject in subjects.items()
                },
                RAW: partial(_receive, written[0], octets, count),
                SUMMED: partial(_receive, written[0], octets, count, summed=True),
            }
            samples = interleave(sides, bench.plan.rounds)
        rows += [
            row(subject, Peer(RAW, None, OF_LIMIT), samples[subject.title], samples[RAW])
            for subject in subjects.values()
        ]
        sent = subjects[False]
        rows.append(row(sent, Peer(SUMMED, None), samples[sent.title], samples[SUMMED]))
    return rows


def _count(bench: Bench, octets: int, pack: int) -> int:
    megabytes = bench.plan.amount(short=400, full=2_000)
    return max(1, megabytes * 1_000_000 // octets // pack) * pack


def _beside(ours: partial[Sample], limits: dict[str, partial[Sample]]) -> Sample:
    mine = ours()
    limiting = {name: limit() for name, limit in limits.items()}
    return Sample(
        mine.value, facts={**limiting[FILE].facts, **{n: sample.value for n, sample in limiting.items()}}
    )


def _paired(subject: Subject, peer: Peer, samples: list[Sample]) -> Row:
    theirs = [Sample(sample.facts[peer.name]) for sample in samples]
    ours = [Sample(sample.value, facts={"groups": sample.facts["groups"]}) for sample in samples]
    return row(subject, peer, ours, theirs)


def _publish(
    broker: RunningBroker,
    octets: int,
    pack: int,
    count: int,
    written: list[Path],
    durability: Literal["sync", "os"] = "sync",
) -> Sample:
    """Publish into a new resource, which replaces the one before; `written` gets the place of its log."""
    with mtl.connect(broker.endpoint) as connection:
        for name in connection.describe():
            connection.delete_resource(name)
        before = set(_logs(broker))
        connection.create_resource("packed", durability=durability)
    to = {"endpoint": broker.endpoint, "resources": ["packed"]}
    with Role("publish", **to, octets=octets, count=count, rows=pack) as role:
        result = role.run()
    written[:] = [log for log in _logs(broker) if log not in before]
    return Sample(count * octets / (result["ended"] - result["began"]) / 1e6)


def _write(bench: Bench, written: list[Path], payload: int, *, summed: bool = False) -> Sample:
    """The octets that the broker wrote, headers included; both rates count the contents' own octets only."""
    with Role(
        "write_file", log=str(written[0]), target=str(bench.place / "plain-file"), summed=summed
    ) as role:
        result = role.run()
    return Sample(payload / (result["ended"] - result["began"]) / 1e6, facts={"groups": result["groups"]})


def _read(broker: RunningBroker, name: str, octets: int, count: int, *, local_reads: bool) -> Sample:
    what = {"resource": name, "count": count, "packed": True, "local_reads": local_reads}
    with Role("read", endpoint=broker.endpoint, **what) as role:
        result = role.run()
    assert result["count"] == count
    return Sample(count * octets / (result["ended"] - result["began"]) / 1e6)


def _receive(log: Path, octets: int, count: int, *, summed: bool = False) -> Sample:
    with Role("raw_send", log=str(log), header=header_of(octets), summed=summed) as sender:
        offered = sender.ready()
        sender.go()
        with Role("raw_receive", port=offered["port"], count=offered["count"]) as receiver:
            result = receiver.run()
    return Sample(count * octets / (result["ended"] - result["began"]) / 1e6)


def _names(broker: RunningBroker) -> list[str]:
    with mtl.connect(broker.endpoint) as connection:
        return sorted(connection.describe())


def _logs(broker: RunningBroker) -> list[Path]:
    return sorted((broker.data / "resources").iterdir())
