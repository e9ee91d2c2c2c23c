from __future__ import annotations

from pathlib import Path

from benchmarks.machine import NOT_MEASURED, differences, machine


def test_a_machine_has_all_that_a_figure_depends_on(tmp_path: Path) -> None:
    found = machine(tmp_path)
    assert {"processor", "cores", "memory", "file system", "java", "pyspark", "libzmq"} <= found.keys()
    assert all(found.values())


def test_the_day_makes_no_other_machine_and_neither_does_a_peer_that_was_left_out() -> None:
    then = {"date": "1", "revision": "a", "cores": "2", "kafka": NOT_MEASURED}
    assert differences(then, {"date": "2", "revision": "b", "cores": "2", "kafka": "4.4.0"}) == []
    assert differences(then, {"cores": "8", "disk": "fast"}) == ["cores: 2 -> 8", "disk: None -> fast"]
