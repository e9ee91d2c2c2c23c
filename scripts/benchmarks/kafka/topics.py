"""Topics and single records through Kafka's own Java client, in Spark's JVM: no other client is needed."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from pyspark.sql import SparkSession


class Topics:
    """Creates and removes topics."""

    def __init__(self, spark: SparkSession, endpoint: str) -> None:
        self._jvm = _java(spark)
        self._admin = self._jvm.org.apache.kafka.clients.admin.AdminClient.create(
            _settings(self._jvm, endpoint)
        )

    def create(self, name: str, partitions: int) -> None:
        """A topic with one replica."""
        topic = self._jvm.org.apache.kafka.clients.admin.NewTopic(name, partitions, 1)
        self._admin.createTopics(self._list(topic)).all().get()

    def delete(self, *names: str) -> None:
        """Remove topics; Kafka soon deletes their data."""
        self._admin.deleteTopics(self._list(*names)).all().get()

    def names(self) -> set[str]:
        """The names of all topics."""
        return set(self._admin.listTopics().names().get())

    def close(self) -> None:
        """Close the client."""
        self._admin.close()

    def _list(self, *items: Any) -> Any:
        java_list = self._jvm.java.util.ArrayList()
        for item in items:
            java_list.add(item)
        return java_list


class Producer:
    """Publishes single records, acknowledged by all replicas, with the client's defaults."""

    def __init__(self, spark: SparkSession, endpoint: str) -> None:
        self._jvm = _java(spark)
        settings = _settings(self._jvm, endpoint)
        settings.put("acks", "all")
        for side in ("key", "value"):
            settings.put(f"{side}.serializer", "org.apache.kafka.common.serialization.StringSerializer")
        self._producer = self._jvm.org.apache.kafka.clients.producer.KafkaProducer(settings)

    def send(self, topic: str, value: str) -> None:
        """Queue a record; the client decides when to send it."""
        self._producer.send(self._jvm.org.apache.kafka.clients.producer.ProducerRecord(topic, value))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._producer.close()


def _settings(jvm: Any, endpoint: str) -> Any:
    settings = jvm.java.util.Properties()
    settings.put("bootstrap.servers", endpoint)
    return settings


def _java(spark: SparkSession) -> Any:
    return spark.sparkContext._jvm  # noqa: SLF001 the only access to Java
