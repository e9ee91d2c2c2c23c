"""A slow disk delays only the readers that need it."""

from __future__ import annotations

from pathlib import Path

from tests.support.slow_disk import fill, latency, slow_broker


def test_a_writer_is_not_delayed_by_a_reader_of_a_slow_disk(tmp_path: Path) -> None:
    """The broker would block for some 2.5 s if its loop read the 25 chunks of one turn."""
    data = tmp_path / "data"
    fill(data)
    with slow_broker(data, 0.1) as endpoint:
        found = latency(endpoint, 1, beside_reader=True)
    assert found.writes > 50
    assert found.longest < 1.0
