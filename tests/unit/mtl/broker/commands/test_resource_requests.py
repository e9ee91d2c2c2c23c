"""Resource.Locate. Creation, deletion and queues have modules of tests in `writing` and `queues`."""

from __future__ import annotations

import pytest

from mtl.errors import DataLoss
from mtl.wire import control
from tests.support.core import START_US, Client, Rig


@pytest.fixture
def timed(rig: Rig, client: Client) -> Client:
    """Chunks of three contents at 0, 10, 20 and 30 seconds: 1, 4, 7, 10."""
    client.create("a")
    flow = client.flow(client.writer("a", packed=True))
    for first in (1, 4, 7, 10):
        flow.pack(first, [b"x"] * 3)
        rig.sleep(10)
    return client


@pytest.mark.parametrize(
    ("seconds", "sequence", "match"),
    [
        (-5, 1, True),
        (0, 1, True),
        (0.5, 4, True),
        (10, 4, True),
        (25, 10, True),
        (30, 10, True),
        (31, 13, False),
    ],
)
def test_locate_by_time(timed: Client, seconds: float, sequence: int, match: bool) -> None:
    at = START_US + int(seconds * 1_000_000)
    located = timed.ask(control.ResourceLocate(resource="a", timestamp=at), control.Located)
    assert (located.sequence, located.match) == (sequence, match)
    assert (located.timestamp is not None) is match


@pytest.mark.parametrize(
    ("start", "contents", "end"),
    [(1, 1, 2), (1, 3, 4), (2, 100, 13), (12, 1, 13), (1, None, 13)],
)
def test_locate_by_contents(timed: Client, start: int, contents: int | None, end: int) -> None:
    located = timed.ask(control.ResourceLocate(resource="a", start=start, contents=contents), control.Located)
    assert (located.sequence, located.match) == (end, True)


def test_locate_by_octets_is_at_least_one_chunk(timed: Client) -> None:
    chunk = (timed.describe("a").bytes or 0) // 4
    for octets, end in ((1, 4), (chunk, 4), (3 * chunk, 10), (1 << 40, 13)):
        located = timed.ask(control.ResourceLocate(resource="a", start=1, bytes=octets), control.Located)
        assert abs(located.sequence - end) <= 3
        assert located.sequence > 3
    assert timed.ask(control.ResourceLocate(resource="a", start=1, bytes=1), control.Located).sequence == 4


def test_locate_at_the_end_and_beyond(timed: Client) -> None:
    located = timed.ask(control.ResourceLocate(resource="a", start=13, contents=5), control.Located)
    assert (located.sequence, located.match) == (13, False)
    beyond = timed.refused(control.ResourceLocate(resource="a", start=14, contents=5))
    assert isinstance(beyond, DataLoss)
    assert timed.refused(control.ResourceLocate(resource="a", start=0)).status == 400
    assert timed.refused(control.ResourceLocate(resource="x", start=1)).status == 404
