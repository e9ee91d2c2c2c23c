"""The cost of a content as things grow, compared with the smallest size, and the memory.

The unit of the rows is microseconds per content, and their facts are the memory: the broker's own octets, those of
mapped files (which the system reclaims when necessary), and those of Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from operator import attrgetter

from pyspark.sql import DataFrame

from benchmarks import accounting, sparks
from benchmarks.bench import Bench
from benchmarks.measure import Peer, Row, Sample, Side, Subject, interleave, row
from benchmarks.roles import Result, Role, together
from benchmarks.workloads.drain import UNIT, backlog, mtl_source
from mtl.testing import RunningBroker

WITHIN = 1.10
OCTETS = 100
PACK = 10_000
"""Contents of a pack where the number of resources does not matter."""

EACH_SYNCED = "a group commit syncs every file that it wrote to; with one resource that is one"
EACH_ALONE = (
    "from one connection contents come in bursts that are handled together; from many there are few of each at a time, "
    "for a bare router, too"
)
"""The reason why a row has no target: a cost that is spread over many cannot stay what it is with one."""

EACH_OPENED = "each resource is read on a lease of its own, which costs some milliseconds"

FEW = 10
"""Contents of a resource where there are many."""

IT_GROWS = "every pass appends 0.1 GB: the log that began with 0.1 GB has ten times that at the end"

BARE = "bare pyzmq router that syncs and answers"

SPREAD_PACK = 100
"""Contents of a pack where they are written to very many resources."""

LASTING = 2_000_000
"""Contents that are written and read in one pass."""

PASSES = 3
"""The number of passes, or fewer with fewer rounds. Their median counts: one pause of the disk may double a pass of a
quarter of a second.
"""

MOST_PASSES = 10
"""The number of reads of the shortest log for one figure."""

MOST_ROUNDS = 3
"""The largest number of rounds of a series, since the large sizes take long."""

CROWD_PROCESS = 250
"""Connections of one helper process."""


def log(bench: Bench) -> list[Row]:
    """The log of a resource: reading all of it, and appending to it."""
    points = bench.plan.points([1_000_000, 4_000_000], [1_000_000, 10_000_000, 100_000_000])
    counts = sorted({max(PACK, point // PACK * PACK) for point in points})
    reading: dict[str, Side] = {}
    appending: dict[str, Side] = {}
    with ExitStack() as stack:
        for count in counts:
            broker = stack.enter_context(bench.own_broker())
            name = stack.enter_context(bench.resources(endpoint=broker.endpoint))[0]
            _publish(broker, [name], count, PACK)
            passes = min(MOST_PASSES, counts[-1] // count)
            reading[_gb(count)] = partial(_read, broker, name, count, passes)
            append = partial(_publish, broker, [name], counts[0], PACK)
            appending[_gb(count)] = partial(_middle, append, _passes(bench))
        rows = _series(bench, "grow-log", "read a log of {}", reading)
        return rows + _series(bench, "grow-log", "append to a log of {}", appending, note=IT_GROWS)


def resources(bench: Bench) -> list[Row]:
    """Resources: one is written and read while others exist; and all of them are written in turn."""
    points = bench.plan.points([1, 100, 1_000], [1, 100, 10_000])
    count = bench.plan.amount(short=LASTING, full=LASTING, unit=PACK)
    spread = max(bench.plan.amount(short=250_000, full=1_000_000, unit=PACK), max(points) * SPREAD_PACK)
    with ExitStack() as stack:
        first_only, all_of_them = {}, {}
        for number in points:
            broker = stack.enter_context(bench.own_broker())
            names = stack.enter_context(bench.resources(number, broker.endpoint))
            first_only[f"{number:,} resources"] = partial(_through, broker, names[0], count, _passes(bench))
            all_of_them[f"{number:,} resources"] = partial(_publish, broker, names, spread, SPREAD_PACK)
        rows = _series(bench, "grow-resources", "write and read one of {}", first_only)
        turns = _series(
            bench, "grow-resources", "write to each of {} in turn", all_of_them, None, EACH_SYNCED
        )
        return rows + turns


def connections(bench: Bench) -> list[Row]:
    """Connections: one is busy while others wait for contents; and all of them publish in turn."""
    points = bench.plan.points([1, 100, 300], [1, 100, 1_000])
    count = bench.plan.amount(short=LASTING, full=LASTING, unit=PACK)
    singly = bench.plan.amount(short=200_000, full=1_000_000, unit=max(points))
    with bench.own_broker() as broker, bench.resources(2, broker.endpoint) as (busy, quiet):
        beside: dict[str, Side] = {}
        in_turn: dict[str, Side] = {}
        bare: dict[str, Side] = {}
        for number in points:
            crowd = partial(_crowd, broker, quiet, number - 1)
            beside[f"{number:,} connections"] = partial(
                _within, crowd, partial(_through, broker, busy, count, _passes(bench))
            )
            in_turn[f"{number:,} connections"] = partial(_singly, broker, busy, singly, number)
            bare[f"{number:,} connections"] = partial(_bare, bench, singly, number)
        rows = _series(bench, "grow-connections", "write and read beside {}", beside)
        turns = _series(
            bench, "grow-connections", "publish one by one from {}", in_turn, None, EACH_ALONE, bare
        )
        return rows + turns


def backlog_of_spark(bench: Bench) -> list[Row]:
    """A backlog that Spark drains in one batch; the cost is by the batch's own duration."""
    points = bench.plan.points([1_000_000, 4_000_000], [2_000_000, 20_000_000])
    with ExitStack() as stack:
        sides: dict[str, Side] = {}
        for count in sorted({max(UNIT, point // UNIT * UNIT) for point in points}):
            broker = stack.enter_context(bench.own_broker())
            names = stack.enter_context(backlog(bench, count, OCTETS, broker.endpoint))
            options = mtl_source(bench, names, broker.endpoint)
            frame = bench.spark.readStream.format("mtl").options(**options).load()
            sides[f"{count / 1e6:g} M contents"] = partial(_drained, bench, broker, frame)
        return _series(bench, "grow-backlog", "drain a backlog of {}", sides)


def pattern_of_spark(bench: Bench) -> list[Row]:
    """Resources of one query by a pattern, each with a few contents: planning and reading them in one batch."""
    points = bench.plan.points([10, 1_000], [10, 1_000, 10_000])
    with ExitStack() as stack:
        sides: dict[str, Side] = {}
        for number in points:
            broker = stack.enter_context(bench.own_broker())
            names = stack.enter_context(bench.resources(number, broker.endpoint))
            _publish(broker, names, number * FEW, FEW)
            options = {"endpoint": broker.endpoint, "resourcePattern": ".*", "startingOffsets": "earliest"}
            frame = bench.spark.readStream.format("mtl").options(**options).load()
            sides[f"{number:,} resources"] = partial(_drained, bench, broker, frame)
        return _series(bench, "grow-pattern", "read {} by a pattern", sides, None, EACH_OPENED)


# --- sides --------------------------------------------------------------------------------------------------


def _publish(broker: RunningBroker, names: Sequence[str], count: int, rows: int) -> Sample:
    """Microseconds per content, in packs, until all are confirmed."""
    arguments = {"resources": list(names), "octets": OCTETS, "count": count, "rows": rows}
    return _watched("publish", broker, arguments)


def _singly(broker: RunningBroker, name: str, count: int, connections: int) -> Sample:
    """Microseconds per content, by plain clients of RFC 11, until all are confirmed."""
    arguments = {"resource": name, "octets": OCTETS, "count": count, "connections": connections}
    return _watched("rfc_publish", broker, arguments)


def _watched(role: str, broker: RunningBroker, arguments: Mapping[str, object]) -> Sample:
    with (
        Role(role, endpoint=broker.endpoint, **arguments) as publisher,
        accounting.watched(broker.pid) as peak,
    ):
        took = _each(publisher.run())
    return Sample(took, facts=_of_broker(peak))


def _bare(bench: Bench, count: int, connections: int) -> Sample:
    """The same from as many connections, without a broker."""
    with Role("grouped_echo", target=str(bench.place / "taken-in")) as router:
        port = router.ready()["port"]
        router.go()
        arguments = {"resource": "", "octets": OCTETS, "count": count, "connections": connections}
        with Role("bare_publish", port=port, **arguments) as publisher:
            return Sample(_each(publisher.run()))


def _each(result: Result) -> float:
    return float((result["ended"] - result["began"]) / result["count"] * 1e6)


def _drained(bench: Bench, broker: RunningBroker, frame: DataFrame) -> Sample:
    """Microseconds per content, by the micro-batch's own duration."""
    with accounting.watched(broker.pid, bench.jvm) as peak:
        sample = sparks.run_now(frame, bench.place, "noop")
    assert sample.inner is not None
    return Sample(1e6 / sample.inner, facts=peak.facts)


def _read(broker: RunningBroker, name: str, count: int, passes: int) -> Sample:
    """Microseconds per content; a short log is read several times, so that the figure is significant."""
    took = 0.0
    with accounting.watched(broker.pid) as peak:
        for _ in range(passes):
            with Role("read", endpoint=broker.endpoint, resource=name, count=count, packed=True) as role:
                result = role.run()
            assert result["count"] == count
            took += result["ended"] - result["began"]
    return Sample(took / (passes * count) * 1e6, facts=_of_broker(peak))


def _passes(bench: Bench) -> int:
    return min(PASSES, bench.plan.rounds)


def _middle(side: Side, passes: int) -> Sample:
    """The median of some passes."""
    return sorted((side() for _ in range(passes)), key=attrgetter("value"))[passes // 2]


def _through(broker: RunningBroker, name: str, count: int, passes: int) -> Sample:
    return _middle(partial(_pass, broker, name, count), passes)


def _pass(broker: RunningBroker, name: str, count: int) -> Sample:
    """Microseconds per content, from the first that is sent to the last that is read."""
    to = {"endpoint": broker.endpoint}
    reading = {**to, "resource": name, "count": count, "packed": True, "start": "latest"}
    publishing = {**to, "resources": [name], "octets": OCTETS, "count": count, "rows": PACK}
    with accounting.watched(broker.pid) as peak:
        read, published = together(("read", reading), ("publish", publishing))
    return Sample((read["ended"] - published["began"]) / count * 1e6, facts=_of_broker(peak))


def _within(around: Callable[[], ExitStack], side: Side) -> Sample:
    with around():
        return side()


def _crowd(broker: RunningBroker, name: str, count: int) -> ExitStack:
    """Helper processes with `count` connections in all, which wait for contents of an empty resource."""
    with ExitStack() as stack:
        for at in range(0, count, CROWD_PROCESS):
            size = min(CROWD_PROCESS, count - at)
            role = stack.enter_context(
                Role("crowd", endpoint=broker.endpoint, resource=name, connections=size)
            )
            role.ready()
            role.go()
        return stack.pop_all()


def _of_broker(peak: accounting.Peak) -> dict[str, float]:
    return {name: fact for name, fact in peak.facts.items() if name.startswith("broker")}


# --- rows ---------------------------------------------------------------------------------------------------


def _series(
    bench: Bench,
    workload: str,
    title: str,
    sides: Mapping[str, Side],
    target: float | None = WITHIN,
    note: str = "",
    bare: Mapping[str, Side] | None = None,
) -> list[Row]:
    """A row for each size except the smallest, which is the peer of all. Each size takes part in each round. `bare` is
    the same work without a broker, which is compared for every size.
    """
    limits = {f"{BARE}, {label}": side for label, side in (bare or {}).items()}
    rounds = min(MOST_ROUNDS, bench.plan.rounds)
    samples = interleave({**sides, **limits}, rounds, warm_up=rounds > 1)  # one round shows that it runs
    subjects = {label: Subject(workload, title.format(label), "µs/content", "less") for label in sides}
    first, *larger = sides
    smallest = Peer(f"the same with {first}", None, target)
    return [
        *(row(subjects[size], smallest, samples[size], samples[first], note) for size in larger),
        *(row(subjects[x], Peer(BARE, None), samples[x], samples[f"{BARE}, {x}"], note) for x in bare or ()),
    ]


def _gb(count: int) -> str:
    return f"{count * OCTETS / 1e9:g} GB"
