"""The time from a content to its Confirm, one content at a time, idle and under load, compared with a write and
fdatasync alone.

Also compared with the least work of two processes: a bare ROUTER that writes, syncs and answers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial

from benchmarks.bench import Bench
from benchmarks.measure import Peer, Row, Sample, Subject, compare, percentile
from benchmarks.roles import Role
from benchmarks.workloads.plain import header_of

ALONE = "write + fdatasync alone"
ECHO = "bare pyzmq echo with write + fdatasync"
OF_SYNC = 2.0
OCTETS = 100
STORED = 256
"""The octets of such a content in a log: the chunk's header, its run table, the padded pack."""
LOAD_OCTETS, LOAD_ROWS = 100, 10_000

Load = Callable[[], AbstractContextManager[None]]
"""The load during the measurement."""


def confirm(bench: Bench) -> list[Row]:
    """The median in ms; under load another client publishes packs as fast as the broker accepts them."""
    count = bench.plan.amount(short=300, full=2_000, unit=10)
    rows = []
    for title, client, loaded, target in (
        ("idle", "rfc_confirm", False, OF_SYNC),
        ("idle, our client", "confirm", False, OF_SYNC),
        ("under load", "confirm", True, None),
    ):
        subject = Subject("confirm", f"Confirm latency, {title}, median", "ms", "less")
        load = partial(_load, bench) if loaded else nullcontext
        ours = partial(_ours, bench, client, count, load)
        peers = [
            Peer(ALONE, partial(_alone, bench, count, load), target),
            Peer(ECHO, partial(_echo, bench, count, load)),
        ]
        rows += compare(subject, ours, peers, bench.plan.rounds)
    return rows


def _ours(bench: Bench, client: str, count: int, load: Load) -> Sample:
    with bench.resources() as names, load():
        to = {"endpoint": bench.endpoint, "resource": names[0]}
        with Role(client, **to, octets=OCTETS, count=count) as role:
            return _sample(role.run()["latencies"])


def _alone(bench: Bench, count: int, load: Load) -> Sample:
    """The write and fdatasync alone, on the same disk under the same load."""
    with (
        load(),
        Role("sync", target=str(bench.place / "sync-alone"), octets=STORED, count=count) as role,
    ):
        return _sample(role.run()["latencies"])


def _echo(bench: Bench, count: int, load: Load) -> Sample:
    """From one process to another and back, with the same write and fdatasync, under the same load."""
    with (
        load(),
        Role("echo", target=str(bench.place / "sync-echo"), octets=STORED) as echo,
    ):
        port = echo.ready()["port"]
        echo.go()
        to = {"port": port, "header": header_of(OCTETS), "octets": OCTETS}
        with Role("round_trip", **to, count=count) as role:
            return _sample(role.run()["latencies"])


def _sample(latencies: list[float]) -> Sample:
    return Sample(percentile(latencies, 0.5) * 1000, facts={"p99 ms": percentile(latencies, 0.99) * 1000})


@contextmanager
def _load(bench: Bench) -> Iterator[None]:
    with bench.resources() as names:
        to = {"endpoint": bench.endpoint, "resource": names[0]}
        with Role("load", **to, octets=LOAD_OCTETS, rows=LOAD_ROWS) as role:
            role.ready()
            role.go()
            yield
