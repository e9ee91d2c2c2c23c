from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from mtl.errors import Fenced, OptionError, Refused
from pyspark_mtl.limits import PARALLEL_REQUESTS
from pyspark_mtl.options.kinds import EARLIEST, GROUP, LATEST, ReadPosition
from pyspark_mtl.options.settings import ReadSettings, parse, read_settings
from pyspark_mtl.source.driver import Driver, driver_id
from pyspark_mtl.source.holdings import Holdings
from pyspark_mtl.source.offsets import Position
from tests.support.fake_client import FakeClient, FakeHolder, FakeLog
from tests.support.texts import in_order


def settings(**options: str) -> ReadSettings:
    options = options if "resourcePattern" in options else {"resources": "a,b", **options}
    return read_settings(parse({name.lower(): value for name, value in options.items()}), streaming=True)


@pytest.fixture(autouse=True)
def _logs(client: FakeClient) -> None:
    client.logs.update(a=FakeLog([b""] * 50, earliest=7), b=FakeLog([b""] * 9))


# --- looking and locating -----------------------------------------------------------------------------------


def test_the_driver_describes_the_resources_of_the_options(client: FakeClient) -> None:
    assert list(Driver(settings()).watch.find()) == ["a", "b"]


def test_the_driver_describes_resources_by_pattern() -> None:
    assert list(Driver(settings(resourcePattern="b|c")).watch.find()) == ["b"]


def test_missing_resources_are_omitted_and_awaited(client: FakeClient) -> None:
    del client.logs["b"]
    assert list(Driver(settings(resources="a,b,c.d")).watch.find()) == ["a"]


@pytest.mark.parametrize(
    ("place", "sequence"),
    [(EARLIEST, 7), (LATEST, 51), (ReadPosition("sequence", 20), 20), (ReadPosition("time", 5), 30)],
)
def test_positions_are_located(client: FakeClient, place: ReadPosition, sequence: int) -> None:
    client.times[5] = 30
    driver = Driver(settings())
    assert driver.locate([(driver.watch.find()["a"], place)]) == [sequence]


def test_a_time_after_all_contents_is_an_error_unless_latest_is_chosen() -> None:
    at = ReadPosition("time", 99)
    driver = Driver(settings())
    with pytest.raises(OptionError, match=in_order("'a'", "no content", "starting time")):
        driver.locate([(driver.watch.find()["a"], at)])
    late = settings(startingTimestamp="1", startingOffsetsByTimestampStrategy="latest")
    assert Driver(late).locate([(driver.watch.find()["a"], at)]) == [51]
    assert driver.locate_ends([(driver.watch.find()["a"], at)]) == [51]


def test_a_group_starts_at_its_cursor_which_is_created_on_request(client: FakeClient) -> None:
    driver = Driver(settings(group="g"))
    found = driver.watch.find()["a"]
    assert driver.locate([(found, GROUP)]) == [7]
    assert client.positions == {}
    assert driver.locate([(found, GROUP)], create_cursors=True) == [7]
    client.positions["g", "a"] = 33
    for create in (False, True):
        assert driver.locate([(found, GROUP)], create_cursors=create) == [33]


def test_octets_are_located_by_the_broker() -> None:
    assert Driver(settings()).ends_within([("a", 10, 200), ("b", 1, 50)]) == [30, 6]


def test_places_of_all_kinds_are_located_together_and_in_order(client: FakeClient) -> None:
    client.times[5] = 30
    driver = Driver(settings(group="g"))
    found, at = driver.watch.find()["a"], ReadPosition("time", 5)
    client.positions["g", "a"] = 33
    places = [(found, place) for place in (LATEST, at, GROUP, EARLIEST, at, ReadPosition("sequence", 20))]
    assert driver.locate(places) == [51, 30, 33, 7, 30, 20]
    assert driver.locate_ends([(found, place) for place in (at, LATEST, at)]) == [30, 51, 30]


def test_requests_for_many_resources_are_with_the_broker_together(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = threading.Barrier(PARALLEL_REQUESTS, timeout=30)

    def locate(_resource: str, start: int, *, bytes: int) -> int:  # noqa: A002 as the client's
        together.wait()
        return start + bytes

    monkeypatch.setattr(client, "locate_end", locate)
    wanted = [("a", first, 10) for first in range(2 * PARALLEL_REQUESTS)]
    assert Driver(settings()).ends_within(wanted) == [first + 10 for _, first, _ in wanted]


# --- holding and confirming ---------------------------------------------------------------------------------


def test_a_resource_is_held_once_by_the_driver(client: FakeClient) -> None:
    driver = Driver(settings(group="g"))
    assert [driver.hold({"a": Position("i1", at)}) for at in (7, 20)] == [{"a": 7}] * 2
    (holder,) = client.holders
    assert (holder.group, holder.holder, holder.requests) == ("g", driver_id(), 1)
    assert holder.positions == {"a": (7, "i1", None)}


def test_without_a_group_members_name_no_epoch(client: FakeClient) -> None:
    assert Driver(settings()).hold({"a": Position("i1", 7)}) == {"a": None}
    assert client.holders[0].group is None


def test_a_commit_is_a_confirm_for_each_resource_and_one_ping(client: FakeClient) -> None:
    driver = Driver(settings())
    driver.hold({"a": Position("i1", 7), "b": Position("i1", 1)})
    driver.confirm({"a": Position("i1", 20, epoch=None), "b": Position("i1", 5), "c": Position("i1", 5)})
    (holder,) = client.holders
    assert (holder.confirmed, holder.pings) == ([("a", 19), ("b", 4)], 1)


def test_an_unchanged_position_is_not_confirmed_again(client: FakeClient) -> None:
    driver = Driver(settings(group="g"))
    for _ in range(3):
        driver.confirm({"a": Position("i1", 20), "b": Position("i1", 1)})
    (holder,) = client.holders
    assert (holder.confirmed, holder.pings) == ([("a", 19)], 1)


def test_the_work_of_a_commit_grows_with_the_number_of_resources_only(
    client: FakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once grew with the square: a commit of 10,000 resources took minutes."""
    lookups = 0
    incarnation = Holdings.incarnation

    def counted(holdings: Holdings, resource: str) -> str | None:
        nonlocal lookups
        lookups += 1
        return incarnation(holdings, resource)

    monkeypatch.setattr(Holdings, "incarnation", counted)
    names = [f"r{number}" for number in range(200)]
    client.logs.update({name: FakeLog([b""]) for name in names})
    driver = Driver(settings(resourcePattern="r.*"))
    driver.hold(dict.fromkeys(names, Position("i1", 1)))
    driver.confirm(dict.fromkeys(names, Position("i1", 2)))
    assert sum(len(holder.confirmed) for holder in client.holders) == len(names)
    assert lookups <= 5 * len(names)


def test_after_a_restart_a_group_is_confirmed_before_reading(client: FakeClient) -> None:
    Driver(settings(group="g")).confirm({"a": Position("i1", 20)})
    assert client.holders[0].confirmed == [("a", 19)]


def test_positions_of_deleted_resources_are_not_confirmed(client: FakeClient) -> None:
    driver = Driver(settings(group="g"))
    driver.confirm({"a": Position("former", 20), "deleted": Position("i1", 5)})
    driver.confirm({"b": Position("i1", 5)})
    assert [confirmed for holder in client.holders for confirmed in holder.confirmed] == [("b", 4)]


def test_another_incarnation_is_held_again_with_the_same_lease(client: FakeClient) -> None:
    driver = Driver(settings())
    driver.hold({"a": Position("i1", 7)})
    client.logs["a"].incarnation = "i2"
    driver.hold({"a": Position("i2", 7)})
    (holder,) = client.holders
    assert (holder.requests, holder.positions["a"].incarnation) == (2, "i2")


def test_a_resource_that_cannot_be_held_is_an_error_or_left_out(client: FakeClient) -> None:
    driver = Driver(settings())
    wanted = {"a": Position("former", 7), "b": Position("i1", 1)}
    driver.try_to_hold(wanted)
    assert list(client.holders[0].held) == ["b"]
    with pytest.raises(Refused, match="another incarnation"):
        driver.hold(wanted)


def test_a_fenced_driver_raises_fenced(client: FakeClient) -> None:
    driver = Driver(settings(group="g"))
    driver.hold({"a": Position("i1", 7)})
    client.fenced = True
    with pytest.raises(Fenced):
        driver.confirm({"a": Position("i1", 20)})


@pytest.mark.parametrize("group", [{}, {"group": "g"}])
def test_a_lost_holding_is_replaced_at_the_current_position(
    client: FakeClient, group: dict[str, str]
) -> None:
    """After a restart of the broker a holding cannot start at confirmed contents removed by retention."""
    driver = Driver(settings(**group))
    driver.hold({"a": Position("i1", 7)})
    (holder,) = client.holders
    holder.lost = {"a"}
    driver.confirm({"a": Position("i1", 20)})
    assert (holder.positions["a"].next, holder.confirmed[-1], holder.pings) == (20, ("a", 19), 2)


def test_a_deleted_resource_is_not_held_again(client: FakeClient) -> None:
    driver = Driver(settings())
    driver.hold({"a": Position("i1", 7), "b": Position("i1", 1)})
    (holder,) = client.holders
    driver.confirm({"a": Position("i1", 8), "b": Position("i1", 5)})
    driver.confirm({"b": Position("i1", 5)})  # without `a` in the offset
    assert list(holder.positions) == ["b"]


def test_close_closes_the_holders(client: FakeClient) -> None:
    driver = Driver(settings())
    driver.hold({"a": Position("i1", 7)})
    driver.close()
    driver.close()
    assert client.holders[0].closed


def test_close_does_not_wait_for_a_silent_broker(client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyspark_mtl.source.driver.RELEASE_S", 0.05)
    silent = threading.Event()
    monkeypatch.setattr(FakeHolder, "close", lambda holder: silent.wait(60))
    driver = Driver(settings())
    driver.hold({"a": Position("i1", 7)})
    began = time.monotonic()
    driver.close()
    assert time.monotonic() - began < 30
    silent.set()


def test_the_driver_is_the_parent_process() -> None:
    host, parent, started = driver_id().split("/")
    assert (host, parent) == (socket.gethostname(), str(os.getppid()))
    assert started.isdecimal() is Path("/proc/self/stat").exists(), (
        "/bin/ps has a date instead of clock ticks"
    )
    assert driver_id() == driver_id()
