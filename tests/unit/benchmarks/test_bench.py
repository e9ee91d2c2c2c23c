from __future__ import annotations

import pytest
from benchmarks.bench import Bench, Plan, resource_name
from benchmarks.measure import NotMeasured, Sample


def test_scaled_amounts_are_whole_units() -> None:
    assert Plan(short=True).amount(short=100, full=1_000) == 100
    assert Plan().amount(short=100, full=1_000) == 1_000
    assert Plan(scale=0.255).amount(short=100, full=1_000, unit=50) == 250
    assert Plan(scale=0.001).amount(short=100, full=1_000, unit=50) == 50


def test_growth_keeps_its_smallest_size_and_drops_equal_ones() -> None:
    assert Plan().points([1, 2], [1, 100, 10_000]) == [1, 100, 10_000]
    assert Plan(scale=0.01).points([1, 2], [1, 100, 10_000]) == [1, 100]


def test_logs_of_brokers_are_shown_but_not_their_data() -> None:
    with Bench(Plan(), touch=False) as bench:
        for name in (
            "kafka/kafka.log",
            "kafka/logs/topic-0/00000000000000000000.log",
            "kafka/logs/other.log",
        ):
            path = bench.place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("words")
        (bench.place / "broker.log").touch()
        assert bench.logs() == [bench.place / "kafka" / "kafka.log"]


def test_without_kafka_its_rows_have_the_reason() -> None:
    with Bench(Plan(kafka=False), touch=False) as bench:
        peer = bench.kafka_peer("Kafka source", 2.0, lambda _: lambda: Sample(1.0))
        assert (peer.side, peer.missing) == (None, "left out (--no-kafka)")
        with pytest.raises(NotMeasured):
            bench.kafka(flush=True)


def test_a_connector_of_another_spark_is_named() -> None:
    with Bench(Plan(), touch=False) as bench:
        assert bench.kafka_name("Kafka sink") == "Kafka sink"
        assert bench.kafka_versions == ""
    with Bench(Plan(connector=("3.9.9", "3.9.8")), touch=False) as bench:
        assert bench.kafka_name("Kafka sink", flush=True) == (
            "Kafka sink, flush before every ack (connector of Spark 3.9.9)"
        )


def test_resource_names_are_unique() -> None:
    names = {resource_name() for _ in range(300_000)}
    assert len(names) == 300_000
    assert {len(name) for name in names} == {len("bench-00000000")}
