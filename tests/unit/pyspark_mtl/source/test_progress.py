from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from mtl.errors import DataLoss, OptionError, Refused
from mtl.wire.control import Description
from mtl.wire.history import History
from pyspark_mtl.options.kinds import ReadPosition
from pyspark_mtl.options.settings import ReadSettings, parse, read_settings
from pyspark_mtl.source.offsets import INITIAL, Offset, Position, between
from pyspark_mtl.source.progress import WAIT_S, Progress
from tests.support.texts import in_order


@dataclass
class Log:
    """A resource as described by the broker: contents of 10 octets, in chunks of 4."""

    next: int = 1
    earliest: int = 1
    incarnation: str = "i1"
    epochs: tuple[tuple[int, str], ...] = ()


@dataclass
class FakeBroker:
    """Answers at once, and records the allowed waiting times."""

    logs: dict[str, Log] = field(default_factory=dict)
    cursors: dict[str, int] = field(default_factory=dict)
    waits: list[float] = field(default_factory=list)
    since: dict[str, int] = field(default_factory=dict)
    """The first content at or after whatever time is asked for."""
    known: Mapping[str, Position] | None = None
    asked: list[str] = field(default_factory=list)
    """The resources whose epochs were asked for."""

    def find(self, known: Mapping[str, Position] | None = None, wait: float = 0.0) -> dict[str, Description]:
        self.known = known
        self.waits.append(0.0 if self._news else wait)
        return {
            name: Description(
                resource=name,
                incarnation=log.incarnation,
                known_earliest=log.earliest,
                known_next=log.next,
                log_epoch=log.epochs[-1][1] if log.epochs else None,
                bytes=10 * (log.next - log.earliest),
            )
            for name, log in self.logs.items()
        }

    @property
    def watch(self) -> FakeBroker:
        return self

    @property
    def _news(self) -> bool:
        known = self.known or {}
        there = {name: Position(log.incarnation, log.next) for name, log in self.logs.items()}
        return known.keys() != there.keys() or any(
            position.incarnation != known[name].incarnation or position.next > known[name].next
            for name, position in there.items()
        )

    def is_silent(self, wait: float) -> bool:
        self.waits.append(0.0 if self._news else wait)
        return not self._news

    def histories(self, found: Iterable[Description]) -> dict[str, History]:
        asked = [description.resource for description in found]
        self.asked += asked
        return {name: History(self.logs[name].epochs, self.logs[name].next) for name in asked}

    def locate(
        self, wanted: Sequence[tuple[Description, ReadPosition]], *, create_cursors: bool = False
    ) -> list[int]:
        return [self._locate(found, place) for found, place in wanted]

    def _locate(self, found: Description, place: ReadPosition) -> int:
        if place.kind == "group":
            return self.cursors.setdefault(found.resource, found.earliest)
        return {"earliest": found.earliest, "latest": found.next}.get(place.kind, place.value)

    def locate_ends(self, wanted: Sequence[tuple[Description, ReadPosition]]) -> list[int]:
        return [min(self.since.get(found.resource, found.next), found.next) for found, _ in wanted]

    def ends_within(self, wanted: Sequence[tuple[str, int, int]]) -> list[int]:
        return [first + max(4, octets // 10 // 4 * 4) for _, first, octets in wanted]


def settings(**options: str) -> ReadSettings:
    options = {"startingOffsets": "earliest", **options}
    if "resourcePattern" not in options:
        options = {"resources": "a", **options}
    return read_settings(parse({name.lower(): value for name, value in options.items()}), streaming=True)


def query(broker: FakeBroker, **options: str) -> Progress:
    """A query that Spark calls again at once."""
    progress = Progress(settings(**options), broker, now=0.0)
    progress.answered_at = math.inf
    return progress


def advance(progress: Progress, start: Offset, now: float = 1.0, *, unlimited: bool = False) -> Offset:
    return progress.advance(start, now, unlimited=unlimited)


# --- beginning ----------------------------------------------------------------------------------------------


def test_the_first_offset_records_the_start() -> None:
    progress = query(FakeBroker({"a": Log(50, 7)}))
    assert advance(progress, INITIAL) == Offset({"a": Position("i1", 50, 7)})


def test_latest_is_recorded_even_without_new_contents() -> None:
    broker = FakeBroker({"a": Log(50)})
    first = advance(query(broker, startingOffsets="latest"), INITIAL)
    assert first == Offset({"a": Position("i1", 50, 50)})
    broker.logs["a"].next = 60
    again = query(broker, startingOffsets="latest")  # the query is restarted before its first batch is done
    assert between(first, advance(again, first))[0].first == 50


def test_a_group_starts_at_its_cursor() -> None:
    broker = FakeBroker({"a": Log(50)}, cursors={"a": 20})
    assert advance(query(broker, startingOffsets="group", group="g"), INITIAL).resources["a"].began == 20


def test_a_resource_that_never_existed_is_an_error() -> None:
    with pytest.raises(Refused, match="the resource 'a' to read does not exist"):
        advance(query(FakeBroker()), INITIAL)


def test_a_resource_that_never_existed_is_an_error_under_available_now() -> None:
    progress = query(FakeBroker())
    progress.fix_the_end()
    with pytest.raises(Refused, match="does not exist"):
        advance(progress, INITIAL)


@pytest.mark.parametrize(
    ("start", "words"), [("5", "contents 5 to 6 .2 in all. are gone"), ("51", "ends at 50")]
)
def test_a_start_outside_the_log_is_a_loss(start: str, words: str) -> None:
    broker = FakeBroker({"a": Log(50, 7)})
    with pytest.raises(DataLoss, match=words):
        advance(query(broker, startingOffsets=f'{{"a": {start}}}'), INITIAL)
    forgiving = query(broker, startingOffsets=f'{{"a": {start}}}', failOnDataLoss="false")
    assert advance(forgiving, INITIAL).resources["a"].began in {7, 50}


def test_a_resource_found_later_is_read_from_its_beginning() -> None:
    broker = FakeBroker({"a": Log(50)})
    progress = query(broker, resourcePattern=".*", startingOffsets="latest")
    first = advance(progress, INITIAL)
    broker.logs["b"] = Log(9)
    second = advance(progress, first)
    assert second.resources == {"a": Position("i1", 50), "b": Position("i1", 9, 1)}


def test_a_resource_found_after_an_empty_offset_is_read_from_its_beginning() -> None:
    broker = FakeBroker()
    progress = query(broker, resourcePattern=".*", startingOffsets="latest")
    first = advance(progress, INITIAL)
    assert first == Offset()
    broker.logs["b"] = Log(9)
    assert advance(progress, first).resources["b"].began == 1


@pytest.mark.parametrize("fixed", [False, True])
def test_an_offset_of_the_checkpoint_without_a_resource_is_not_new(fixed: bool) -> None:
    """The pattern matched no resource in an earlier run, or all of them are deleted. SPARK-41375 for Kafka."""
    progress = query(FakeBroker({"a": Log(50)}), resourcePattern=".*", startingOffsets="latest")
    if fixed:
        progress.fix_the_end()
    assert advance(progress, Offset()) == Offset({"a": Position("i1", 50, 1)})


def test_a_first_batch_planned_twice_starts_at_the_option_each_time() -> None:
    progress = query(FakeBroker({"a": Log(50)}), startingOffsets="latest")
    assert advance(progress, INITIAL) == advance(progress, INITIAL) == Offset({"a": Position("i1", 50, 50)})


# --- standing still -----------------------------------------------------------------------------------------


def test_an_idle_query_waits_and_keeps_its_offset() -> None:
    broker = FakeBroker({"a": Log(50)})
    progress = query(broker)
    first = advance(progress, INITIAL)
    assert advance(progress, first) is first
    assert broker.waits == [0.0, WAIT_S]


def test_a_query_without_news_is_idle_until_news_arrive() -> None:
    broker = FakeBroker({"a": Log(50)})
    progress = query(broker)
    first = advance(progress, INITIAL)
    assert not progress.is_idle(first, 1.0)  # later contents have not been described yet
    assert advance(progress, first) is first
    assert progress.is_idle(first, 1.1)
    equal = Offset(dict(first.resources))
    assert not progress.is_idle(equal, 1.2)  # it is not the one that was looked at
    assert broker.waits[1:] == [WAIT_S, WAIT_S]
    broker.logs["a"].next = 51
    assert not progress.is_idle(first, 1.3)
    assert advance(progress, first).resources["a"].next == 51


def test_a_query_that_advanced_or_has_an_end_is_not_idle() -> None:
    broker = FakeBroker({"a": Log(50)})
    progress = query(broker, failOnDataLoss="false")
    first = advance(progress, INITIAL)
    broker.logs["a"] = Log(incarnation="i2")  # recreated: its known end is no longer valid
    moved = advance(progress, first)
    assert moved.resources["a"] == Position("i2", 1, 1)
    assert not progress.is_idle(moved, 1.0)
    fixed = query(broker)
    fixed.fix_the_end()
    start = advance(fixed, INITIAL)
    assert advance(fixed, start) is start
    assert not fixed.is_idle(start, 1.0)


def test_a_query_whose_contents_were_all_removed_waits() -> None:
    broker = FakeBroker({"a": Log(50)})
    progress = query(broker, failOnDataLoss="false")
    first = advance(progress, INITIAL)
    broker.logs["a"] = Log(90, 90)
    assert advance(progress, first) == first
    assert advance(progress, first) == first
    assert broker.waits[-1] == WAIT_S


def test_a_query_waits_for_changes_of_the_resources_last_found() -> None:
    """Otherwise a missing or a recreated resource would count as news in every trigger."""
    broker = FakeBroker({"a": Log(9), "b": Log(9)})
    progress = query(broker, resources="a,b", failOnDataLoss="false")
    end = advance(progress, Offset({"a": Position("i1", 9), "b": Position("i1", 9)}))
    assert broker.known == {"a": Position("i1", 9), "b": Position("i1", 9)}
    assert broker.waits[-1] == WAIT_S
    del broker.logs["b"]
    end = advance(progress, end)
    assert broker.waits[-1] == 0.0
    end = advance(progress, end)
    assert broker.known == {"a": Position("i1", 9)}
    assert broker.waits[-1] == WAIT_S
    broker.logs = {"a": Log(3, 3, "i2"), "b": Log(9)}
    end = advance(progress, end)
    assert broker.waits[-1] == 0.0
    assert advance(progress, end) is end
    assert broker.known == {"a": Position("i2", 3), "b": Position("i1", 9)}
    assert broker.waits[-1] == WAIT_S


def test_a_resource_recreated_after_its_end_is_known() -> None:
    broker = FakeBroker({"a": Log(5, incarnation="i2")})
    progress = query(broker, endingOffsets='{"a": 60}')
    start = Offset({"a": Position("i1", 60)})
    assert advance(progress, start) is advance(progress, start) is start
    assert broker.known == {"a": Position("i2", (1 << 63) - 1)}
    assert broker.waits[-1] == WAIT_S


def test_missing_resources_keep_their_position() -> None:
    start = Offset({"a": Position("i1", 5), "left": Position("j", 7)})
    end = advance(query(FakeBroker({"a": Log(9)})), start)
    assert end.resources == {"a": Position("i1", 9), "left": Position("j", 7)}


# --- losing -------------------------------------------------------------------------------------------------


def test_contents_removed_before_the_query_read_them_are_a_loss() -> None:
    with pytest.raises(DataLoss, match=r"contents 5 to 11 \(7 in all\) are gone"):
        advance(query(FakeBroker({"a": Log(50, 12)})), Offset({"a": Position("i1", 5)}))


def test_a_recreated_resource_is_a_loss_and_then_read_from_its_start() -> None:
    broker, start = FakeBroker({"a": Log(9, incarnation="i2")}), Offset({"a": Position("i1", 5)})
    with pytest.raises(DataLoss, match=in_order("created again", "another broker")):
        advance(query(broker), start)
    end = advance(query(broker, failOnDataLoss="false"), start)
    assert end.resources == {"a": Position("i2", 9, 1)}
    assert [(offset_range.first, offset_range.until) for offset_range in between(start, end)] == [(1, 9)]


def test_a_deleted_resource_is_a_loss_or_is_awaited(caplog: pytest.LogCaptureFixture) -> None:
    broker, start = FakeBroker(), Offset({"a": Position("i1", 5)})
    with pytest.raises(DataLoss, match="was deleted"):
        advance(query(broker), start)
    forgiving = query(broker, failOnDataLoss="false")
    assert advance(forgiving, start) is start
    assert advance(forgiving, start) is start
    assert len(caplog.records) == 1


def test_a_deleted_resource_of_a_pattern_is_a_loss_or_dropped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    start = Offset({"a": Position("i1", 9), "b": Position("i1", 5, 1), "elsewhere": Position("j", 7)})
    with pytest.raises(DataLoss, match=in_order("'b'", "deleted", 5)):
        advance(query(FakeBroker({"a": Log(9)}), resourcePattern="[ab]"), start)
    broker = FakeBroker({"a": Log(9)})
    forgiving = query(broker, resourcePattern="[ab]", failOnDataLoss="false")
    end = advance(forgiving, start)
    assert end.resources == {"a": Position("i1", 9), "elsewhere": Position("j", 7)}, "parked is not deleted"
    assert between(start, end) == []
    assert advance(forgiving, end) is end
    assert len(caplog.records) == 1
    assert advance(query(broker, resourcePattern="[ab]"), end) is end, "what was accepted is not told again"


def test_dead_letters_that_an_earlier_run_has_read_are_parked() -> None:
    options = {"resourcePattern": "[ab]", "bodyFormat": "text", "deadLetter": "b"}
    start = Offset({"a": Position("i1", 9), "b": Position("i1", 5)})
    assert advance(query(FakeBroker({"a": Log(9)}), **options), start) is start


def test_a_log_that_ends_before_the_query_is_a_loss() -> None:
    with pytest.raises(DataLoss, match="ends at 50: contents 50 to 59"):
        advance(query(FakeBroker({"a": Log(50)})), Offset({"a": Position("i1", 60)}))


# --- epochs (PROTOCOL.md 5.1.1) -----------------------------------------------------------------------------

ONE, TWO, OTHER = "1.aaaaaaaa", "2.bbbbbbbb", "2.cccccccc"
SEEN = Offset({"a": Position("i1", 16, epoch=TWO)})


def test_an_offset_has_the_epoch_of_the_last_content_before_it() -> None:
    broker = FakeBroker({"a": Log(21, epochs=((1, ONE), (11, TWO)))})
    progress = query(broker, maxOffsetsPerTrigger="8")
    first = advance(progress, INITIAL)
    second = advance(progress, first)
    third = advance(progress, second)
    assert [offset.resources["a"] for offset in (first, second, third)] == [
        Position("i1", 9, 1, ONE),
        Position("i1", 17, None, TWO),
        Position("i1", 21, None, TWO),
    ]
    assert "a" in broker.asked, "the epoch of a position inside a log has to be requested"


def test_epochs_are_requested_only_after_a_restart_of_the_broker() -> None:
    broker = FakeBroker({"a": Log(11, epochs=((1, ONE),))})
    progress = query(broker)
    end = advance(progress, advance(progress, INITIAL))
    assert broker.asked == []
    broker.logs["a"] = Log(21, epochs=((1, ONE), (11, TWO)))
    assert advance(progress, end).resources["a"] == Position("i1", 21, None, TWO)
    assert broker.asked == ["a"]


@pytest.mark.parametrize(
    "log",
    [
        Log(11, epochs=((1, ONE),)),
        Log(99, epochs=((1, ONE), (11, OTHER))),
        Log(12, epochs=((1, ONE), (11, OTHER))),
    ],
)
def test_another_copy_of_the_log_is_a_loss(log: Log) -> None:
    with pytest.raises(DataLoss, match="contents 11 to 15 ") as caught:
        advance(query(FakeBroker({"a": log})), SEEN)
    assert (caught.value.first, caught.value.end) == (11, 16)


def test_another_copy_of_the_log_is_read_from_where_it_diverges_if_losses_are_skipped(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broker = FakeBroker({"a": Log(99, epochs=((1, ONE), (11, OTHER)))})
    progress = query(broker, failOnDataLoss="false")
    end = advance(progress, SEEN)
    assert end.resources["a"] == Position("i1", 99, 11, OTHER)
    (batch,) = between(SEEN, end)
    assert (batch.first, batch.until, batch.before, batch.last) == (11, 99, None, OTHER)
    assert advance(progress, end) is end
    broker.logs["a"].next = 100
    assert advance(progress, end).resources["a"] == Position("i1", 100, None, OTHER)
    assert len([record for record in caplog.records if "another copy" in record.message]) == 1


def test_another_copy_of_the_log_is_read_from_the_querys_start() -> None:
    """Both offsets have the same start; the second reads from it again."""
    first = Offset({"a": Position("i1", 6, 1, ONE)})
    broker = FakeBroker({"a": Log(4, epochs=((1, "1.cccccccc"),))})
    end = advance(query(broker, failOnDataLoss="false"), first)
    assert end.resources["a"] == Position("i1", 4, 1, "1.cccccccc")
    assert [(offset_range.first, offset_range.until) for offset_range in between(first, end)] == [(1, 4)]


def test_an_offset_without_an_epoch_is_checked_against_the_end_only() -> None:
    broker = FakeBroker({"a": Log(99, epochs=((1, ONE), (11, OTHER)))})
    end = advance(query(broker), Offset({"a": Position("i1", 16)}))
    assert end.resources["a"] == Position("i1", 99, None, OTHER)


# --- limits -------------------------------------------------------------------------------------------------


def test_a_batch_does_not_exceed_its_limit() -> None:
    progress = query(FakeBroker({"a": Log(1001)}), maxOffsetsPerTrigger="100")
    first = advance(progress, INITIAL)
    second = advance(progress, first)
    assert [first.resources["a"].next, second.resources["a"].next] == [101, 201]


def test_a_limit_is_split_over_the_resources() -> None:
    broker = FakeBroker({"a": Log(901), "b": Log(101)})
    end = advance(query(broker, resourcePattern=".*", maxOffsetsPerTrigger="100"), INITIAL)
    assert {name: position.next - 1 for name, position in end.resources.items()} == {"a": 90, "b": 10}


def test_octets_are_located_by_the_broker_and_both_limits_apply() -> None:
    broker = FakeBroker({"a": Log(1001)})
    by_octets = advance(query(broker, maxBytesPerTrigger="200"), INITIAL)
    by_both = advance(query(broker, maxBytesPerTrigger="200", maxOffsetsPerTrigger="7"), INITIAL)
    at_least_a_chunk = advance(query(broker, maxBytesPerTrigger="1"), INITIAL)
    assert [offset.resources["a"].next for offset in (by_octets, by_both, at_least_a_chunk)] == [21, 8, 5]


def test_trigger_once_ignores_limits() -> None:
    progress = query(FakeBroker({"a": Log(1001)}), maxOffsetsPerTrigger="100", minOffsetsPerTrigger="100")
    assert advance(progress, INITIAL, unlimited=True).resources["a"].next == 1001


def test_a_batch_waits_for_the_minimum_and_pins_its_start() -> None:
    broker = FakeBroker({"a": Log(11)})
    progress = query(broker, minOffsetsPerTrigger="100", maxTriggerDelay="10s")
    first = advance(progress, INITIAL, now=1.0)
    assert first == Offset({"a": Position("i1", 1, 1)})
    assert advance(progress, first, now=9.9) is first
    assert broker.waits[-1] == pytest.approx(0.1)  # not past the end of the delay
    late = advance(progress, first, now=10.0)
    assert late.resources["a"].next == 11
    broker.logs["a"].next = 200
    assert advance(progress, late, now=10.1).resources["a"].next == 200


def test_an_idle_query_with_a_minimum_waits_normally() -> None:
    broker = FakeBroker({"a": Log(200)})
    progress = query(broker, minOffsetsPerTrigger="100", maxTriggerDelay="10s")
    first = advance(progress, INITIAL, now=1.0)
    advance(progress, first, now=500.0)
    assert broker.waits[-1] == WAIT_S


# --- available now ------------------------------------------------------------------------------------------


def test_available_now_ends_at_the_ends_found_at_its_start() -> None:
    broker = FakeBroker({"a": Log(101)})
    progress = query(broker, resourcePattern=".*", minOffsetsPerTrigger="1000000")
    progress.fix_the_end()
    broker.logs["a"].next = 500
    broker.logs["found later"] = Log(9)
    first = advance(progress, INITIAL)
    assert first.resources == {"a": Position("i1", 101, 1)}
    assert advance(progress, first) is first
    assert set(broker.waits) == {0.0}


@dataclass(frozen=True)
class Gone:
    """The fate of a resource during a run, and the error of the query."""

    logs: dict[str, Log]
    words: str


GONE = [
    pytest.param(Gone({}, "was deleted: its contents from 11 on"), id="deleted"),
    pytest.param(
        Gone({"a": Log(5, incarnation="i2")}, "was deleted and created again"), id="recreated, shorter"
    ),
    pytest.param(
        Gone({"a": Log(500, incarnation="i2")}, "was deleted and created again"), id="recreated, longer"
    ),
]
BY_NAME = {"resources": "a", "maxOffsetsPerTrigger": "10"}
BY_PATTERN = {"resourcePattern": "a", "maxOffsetsPerTrigger": "10"}


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("options", [BY_NAME, BY_PATTERN])
def test_a_resource_deleted_during_a_bounded_run_is_a_loss(options: dict[str, str], gone: Gone) -> None:
    broker = FakeBroker({"a": Log(101)})
    progress = query(broker, **options)
    progress.fix_the_end()
    first = advance(progress, INITIAL)
    broker.logs = gone.logs
    with pytest.raises(DataLoss, match=gone.words):
        advance(progress, first)


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("options", [BY_NAME, BY_PATTERN])
def test_a_resource_deleted_before_the_first_batch_is_a_loss(options: dict[str, str], gone: Gone) -> None:
    broker = FakeBroker({"a": Log(101)})
    progress = query(broker, **options)
    progress.fix_the_end()
    broker.logs = gone.logs
    with pytest.raises(DataLoss, match=gone.words.replace("from 11", "from 1")):
        advance(progress, INITIAL)


@pytest.mark.parametrize("options", [BY_NAME, BY_PATTERN])
def test_a_resource_recreated_during_a_bounded_run_is_a_loss(
    options: dict[str, str],
) -> None:
    broker = FakeBroker()
    progress = query(broker, **options)
    progress.fix_the_end()
    broker.logs["a"] = Log(9, incarnation="i2")
    with pytest.raises(DataLoss, match="was deleted and created again"):
        advance(progress, Offset({"a": Position("i1", 5)}))


@pytest.mark.parametrize("gone", GONE)
@pytest.mark.parametrize("options", [BY_NAME, BY_PATTERN])
def test_a_resource_deleted_after_it_was_read_is_a_loss_of_the_next_run(
    options: dict[str, str], gone: Gone
) -> None:
    broker = FakeBroker({"a": Log(11)})
    progress = query(broker, **options)
    progress.fix_the_end()
    first = advance(progress, INITIAL)
    broker.logs = gone.logs
    assert advance(progress, first) is first
    following = query(broker, **options)
    following.fix_the_end()
    with pytest.raises(DataLoss, match=gone.words):
        advance(following, first)


def test_losses_during_available_now_may_be_skipped(caplog: pytest.LogCaptureFixture) -> None:
    broker = FakeBroker({"a": Log(101), "b": Log(101)})
    progress = query(broker, resourcePattern="[ab]", maxOffsetsPerTrigger="20", failOnDataLoss="false")
    progress.fix_the_end()
    first = advance(progress, INITIAL)
    broker.logs = {"b": Log(500, incarnation="i2")}
    second = advance(progress, first)
    assert second.resources == {"b": Position("i2", 1, 1)}, "the next run reads it from its first content"
    assert between(first, second) == []
    assert advance(progress, second) is second
    assert len(caplog.records) == 2


# --- ends ---------------------------------------------------------------------------------------------------


def test_a_bounded_stream_waits_at_its_end() -> None:
    broker = FakeBroker({"a": Log(50)})
    progress = query(broker, endingOffsets='{"a": 60}')
    first = advance(progress, INITIAL)
    broker.logs["a"].next = 90
    second = advance(progress, first)
    assert [first.resources["a"].next, second.resources["a"].next] == [50, 60]
    for _ in range(2):
        broker.logs["a"].next += 1  # new contents do not wake the query
        assert advance(progress, second) is second
    assert broker.waits[-1] == WAIT_S
    assert advance(query(broker, endingOffsets='{"a": 60}'), second) == second


def test_an_end_by_time_is_the_first_later_content() -> None:
    broker = FakeBroker({"a": Log(50)})
    progress = query(broker, endingTimestamp="1000")
    first = advance(progress, INITIAL)
    broker.logs["a"].next, broker.since = 90, {"a": 70}
    second = advance(progress, first)
    assert [first.resources["a"].next, second.resources["a"].next] == [50, 70]
    assert advance(progress, second) is second
    assert advance(query(broker, endingTimestamp="1000"), second) == second


def test_limits_and_available_now_apply_below_the_end() -> None:
    broker = FakeBroker({"a": Log(1001)})
    progress = query(broker, endingOffsets='{"a": 26}', maxOffsetsPerTrigger="10")
    progress.fix_the_end()
    offsets = [INITIAL]
    for _ in range(4):
        offsets.append(advance(progress, offsets[-1]))
    assert [offset.resources["a"].next for offset in offsets[1:]] == [11, 21, 26, 26]


def test_a_resource_without_an_end_is_read_continuously() -> None:
    broker = FakeBroker({"a": Log(50), "b": Log(50)})
    end = advance(query(broker, resourcePattern=".*", endingOffsets='{"a": 7}'), INITIAL)
    assert {name: position.next for name, position in end.resources.items()} == {"a": 7, "b": 50}


@pytest.mark.parametrize("log", [None, Log(90, 80), Log(5, incarnation="i2")])
def test_changes_of_a_resource_after_its_end_are_not_a_loss(log: Log | None) -> None:
    broker = FakeBroker({} if log is None else {"a": log})
    start = Offset({"a": Position("i1", 60)})
    assert advance(query(broker, endingOffsets='{"a": 60}'), start) == start


def test_a_loss_is_reported_up_to_the_end(caplog: pytest.LogCaptureFixture) -> None:
    broker, start = FakeBroker({"a": Log(90, 80)}), Offset({"a": Position("i1", 50)})
    with pytest.raises(DataLoss, match=r"contents 50 to 59 \(10 in all\) are gone"):
        advance(query(broker, endingOffsets='{"a": 60}'), start)
    with pytest.raises(DataLoss, match=r"contents 50 to 59 \(10 in all\) are gone"):
        advance(query(broker, endingOffsets='{"a": 60}', startingOffsets='{"a": 50}'), INITIAL)
    forgiving = query(broker, endingOffsets='{"a": 60}', failOnDataLoss="false")
    assert advance(forgiving, advance(forgiving, start)) == start
    assert [record.message.count("50 to 59") for record in caplog.records] == [1]


def test_an_end_before_the_start_is_an_error() -> None:
    broker = FakeBroker({"a": Log(50)}, cursors={"a": 20})
    for words in ("latest", '{"a": 20}'):
        with pytest.raises(OptionError, match=r"the read of 'a' ends .10. before it starts"):
            advance(query(broker, endingOffsets='{"a": 10}', startingOffsets=words), INITIAL)
    done = advance(query(broker, endingOffsets='{"a": 10}', startingOffsets="group", group="g"), INITIAL)
    assert done.resources["a"] == Position("i1", 20, 20)


# --- random runs --------------------------------------------------------------------------------------------


@examples(deadline=None)  # a thousand small batches: no measure of a busy machine
@given(
    st.lists(
        st.dictionaries(st.sampled_from("abc"), st.integers(0, 40), max_size=3), min_size=1, max_size=10
    ),
    st.none() | st.integers(1, 30),
    st.none() | st.integers(1, 300),
    st.booleans(),
)
def test_every_content_is_read_once(
    appends: list[dict[str, int]], max_contents: int | None, max_bytes: int | None, restarts: bool
) -> None:
    """Contents arrive, batches are read, the query restarts with Spark's offsets: no content is lost or repeated."""
    options = {"resourcePattern": ".*"}
    if max_contents is not None:
        options["maxOffsetsPerTrigger"] = str(max_contents)
    if max_bytes is not None:
        options["maxBytesPerTrigger"] = str(max_bytes)
    broker, given = FakeBroker(), settings(**options)
    progress, offset = Progress(given, broker, now=0.0), INITIAL
    read: dict[str, list[int]] = {}
    for step in [*appends, *[{}] * sum(sum(step.values()) for step in appends)]:
        for name, count in step.items():
            log = broker.logs.setdefault(name, Log())
            broker.logs[name] = replace(log, next=log.next + count)
        if restarts:
            progress = Progress(given, broker, now=0.0)
        end = advance(progress, offset)
        for offset_range in between(offset, end):
            read.setdefault(offset_range.resource, []).extend(range(offset_range.first, offset_range.until))
        offset = end
    for name, log in broker.logs.items():
        assert read.get(name, []) == list(range(1, log.next))
