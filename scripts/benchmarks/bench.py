"""The resources that all workloads share: Spark, a broker, the Kafka peer. Each is started on first use."""

from __future__ import annotations

import itertools
import os
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark
from pyspark.sql import SparkSession

import mtl
import mtl.testing
from benchmarks import accounting, memory, sparks
from benchmarks.kafka import jars
from benchmarks.kafka.node import FLUSH_EVERY_MESSAGE, Node
from benchmarks.kafka.topics import Topics
from benchmarks.measure import NotMeasured, Peer, Side
from mtl.testing import RunningBroker

ROOT = Path(__file__).parents[2]
TASKS = max(2, os.cpu_count() or 1)
"""Tasks of every job, resources of a backlog, partitions of a topic: one for each core."""

BATCH_ROWS = 10_000
"""Rows of a generated Arrow batch: the number that Spark itself passes to a sink."""


@dataclass(frozen=True)
class Plan:
    """How much is measured. `connector` is the version of Kafka's connector, and of its token provider if that
    differs.
    """

    short: bool = False
    scale: float = 1.0
    rounds: int = 5
    kafka: bool = True
    connector: tuple[str, str] = (pyspark.__version__, "")

    def amount(self, *, short: int, full: int, unit: int = 1) -> int:
        """`short` or `full`, scaled; a multiple of `unit`, at least one `unit`."""
        wanted = int((short if self.short else full) * self.scale)
        return max(1, wanted // unit) * unit

    def time(self, *, short: float, full: float) -> float:
        """Seconds of a timed measurement, scaled; at least one."""
        return max(1.0, (short if self.short else full) * min(1.0, self.scale))

    def points(self, short: list[int], full: list[int]) -> list[int]:
        """Sizes of a growth series, scaled, without duplicates."""
        wanted = short if self.short else full
        return sorted({max(1, int(size * self.scale)) if size > 1 else size for size in wanted})


@dataclass(frozen=True)
class Kafka:
    """The running peer."""

    node: Node
    topics: Topics

    @property
    def endpoint(self) -> str:
        """The broker's endpoint."""
        return self.node.endpoint

    @property
    def options(self) -> dict[str, str]:
        """The options of every read and write."""
        return {"kafka.bootstrap.servers": self.node.endpoint}

    @contextmanager
    def topic(self, partitions: int = TASKS) -> Iterator[str]:
        """A new topic, removed at the end of the block."""
        name = f"bench-{uuid.uuid4().hex}"
        self.topics.create(name, partitions)
        try:
            yield name
        finally:
            self.topics.delete(name)


_numbers = itertools.count(uuid.uuid4().int)
"""Random names with so few digits would be equal in one of a hundred runs with 10,000 resources."""


def resource_name() -> str:
    """A new name, as long as the name in the rows that peers.py generates: a row carries its resource's name."""
    return f"bench-{next(_numbers) % (1 << 32):08x}"


class Bench:
    """Starts processes on demand and ends all of them. `place` is on the measured disk. Free memory is touched before
    every timing (`memory`), unless `touch` is off: a profile would include that work.
    """

    def __init__(self, plan: Plan, *, touch: bool = True) -> None:
        self.plan = plan
        self._stack = ExitStack()
        (ROOT / "build").mkdir(exist_ok=True)
        self.place = Path(
            self._stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-", dir=ROOT / "build"))
        )
        self._kafka: dict[bool, Kafka | NotMeasured] = {}
        if touch and plan.scale >= 1:  # a smaller scale shows only that the workload runs
            self._stack.enter_context(memory.touched(self.place))

    # --- ours -----------------------------------------------------------------------------------------------

    @cached_property
    def broker(self) -> RunningBroker:
        """The broker that most workloads share."""
        return self._stack.enter_context(mtl.testing.broker(data=self.place / "broker"))

    @property
    def endpoint(self) -> str:
        """Its control endpoint."""
        return self.broker.endpoint

    @contextmanager
    def own_broker(self) -> Iterator[RunningBroker]:
        """An empty broker."""
        with mtl.testing.broker(data=self.place / f"broker-{uuid.uuid4().hex}") as broker:
            yield broker

    @contextmanager
    def resources(self, count: int = 1, endpoint: str = "") -> Iterator[list[str]]:
        """New resources, removed at the end of the block."""
        names = [resource_name() for _ in range(count)]
        with mtl.connect(endpoint or self.endpoint) as connection:
            for name in names:
                connection.create_resource(name)
            try:
                yield names
            finally:
                for name in names:
                    connection.delete_resource(name)

    # --- Spark ----------------------------------------------------------------------------------------------

    @cached_property
    def spark(self) -> SparkSession:
        """Spark with one task slot per core, and with Kafka's connector if it is available."""
        session = sparks.session(self.place / "spark", TASKS, self._connector_jars)
        self._stack.callback(session.stop)
        return session

    @property
    def jvm(self) -> int:
        """The process id of Spark's JVM; Spark's Python workers are its descendants."""
        gateway = self.spark.sparkContext._gateway  # noqa: SLF001 who else knows
        assert gateway is not None
        pid: int = gateway.proc.pid
        return pid

    def spark_processes(self) -> set[int]:
        """This process, the JVM, and its workers."""
        return {os.getpid()} | accounting.tree(self.jvm)

    @cached_property
    def _connector_jars(self) -> list[Path]:
        try:
            return self._kafka_jars()
        except NotMeasured:
            return []

    def _kafka_jars(self) -> list[Path]:
        if not self.plan.kafka:
            raise NotMeasured("left out (--no-kafka)")
        return jars.connector(*self.plan.connector).fetch()

    # --- Kafka ----------------------------------------------------------------------------------------------

    def kafka(self, *, flush: bool = False) -> Kafka:
        """The Kafka peer; with `flush` it flushes before every acknowledgement. NotMeasured says why it is not
        available.
        """
        if flush not in self._kafka:
            try:
                self._kafka[flush] = self._started(flush=flush)
            except NotMeasured as reason:
                self._kafka[flush] = reason
        found = self._kafka[flush]
        if isinstance(found, NotMeasured):
            raise found
        return found

    def _started(self, *, flush: bool) -> Kafka:
        self._kafka_jars()
        spark = self.spark
        name = "kafka-flush" if flush else "kafka"
        node = Node(self.place / name, FLUSH_EVERY_MESSAGE if flush else None)
        self._stack.callback(node.stop)
        node.start()
        topics = Topics(spark, node.endpoint)
        self._stack.callback(topics.close)
        return Kafka(node, topics)

    @property
    def kafka_versions(self) -> str:
        """The versions of the broker and the connector that took part; empty if there was no peer."""
        if not any(isinstance(found, Kafka) for found in self._kafka.values()):
            return ""
        version, token = self.plan.connector
        others = f", token provider {token}" if token and token != version else ""
        return f"broker {jars.broker_version()}, connector {version}{others}"

    def kafka_peer(
        self, name: str, target: float | None, side: Callable[[Kafka], Side], *, flush: bool = False
    ) -> Peer:
        """The peer of a row, created with the running broker; or the reason why it is missing."""
        label = self.kafka_name(name, flush=flush)
        try:
            return Peer(label, side(self.kafka(flush=flush)), target)
        except NotMeasured as reason:
            return Peer(label, None, target, str(reason))

    def kafka_name(self, name: str, *, flush: bool = False) -> str:
        """The name in the table, with the connector's version of Spark if it is not the running one."""
        label = f"{name}, flush before every ack" if flush else name
        version = self.plan.connector[0]
        return label if version == pyspark.__version__ else f"{label} (connector of Spark {version})"

    def logs(self) -> list[Path]:
        """The nonempty logs of the brokers: the first place to look when a workload fails. Kafka's data files have the
        same suffix, in directories named logs.
        """
        logs = (x for x in self.place.rglob("*.log") if "logs" not in x.relative_to(self.place).parts)
        return [path for path in logs if path.stat().st_size]

    # --- the end --------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()
