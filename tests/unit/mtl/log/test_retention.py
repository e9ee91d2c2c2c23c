from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.log.retention import Hold, Loss, RetentionPlan, RetentionPolicy, SegmentInfo, plan

SECOND = 1_000_000


def segments(count: int = 5, *, size: int = 100, contents: int = 10) -> list[SegmentInfo]:
    """Contents 1..10, 11..20 and so on; the newest content of each at second 1, 2 and so on."""
    return [
        SegmentInfo(1 + at * contents, 1 + (at + 1) * contents, size, (at + 1) * SECOND)
        for at in range(count)
    ]


def before(now_us: int) -> Callable[[float], int]:
    return lambda age_s: now_us - int(age_s * SECOND)


def planned(policy: RetentionPolicy, *holds: Hold, now_s: float = 0.0, count: int = 5) -> RetentionPlan:
    infos = segments(count)
    return plan(
        infos,
        total_bytes=sum(info.bytes for info in infos),
        next_sequence=infos[-1].end,
        policy=policy,
        holds=holds,
        too_old=before(int(now_s * SECOND)),
    )


def group(name: str, position: int) -> Hold:
    return Hold(name, position, group=True)


def pin(position: int) -> Hold:
    return Hold("reader", position, group=False)


@pytest.mark.parametrize(
    ("policy", "now_s", "earliest"),
    [
        (RetentionPolicy(), 1e9, 1),
        (RetentionPolicy(bytes=500), 0, 1),
        (RetentionPolicy(bytes=401), 0, 1),
        (RetentionPolicy(bytes=400), 0, 11),
        (RetentionPolicy(bytes=250), 0, 21),
        (RetentionPolicy(bytes=0), 0, 41),
        (RetentionPolicy(contents=50), 0, 1),
        (RetentionPolicy(contents=40), 0, 11),
        (RetentionPolicy(contents=35), 0, 11),
        (RetentionPolicy(contents=1), 0, 41),
        (RetentionPolicy(age_s=10), 11, 1),
        (RetentionPolicy(age_s=10), 11.5, 11),
        (RetentionPolicy(age_s=10), 13.5, 31),
        (RetentionPolicy(age_s=10), 1e6, 41),  # the newest stays, however old
        (RetentionPolicy(bytes=400, age_s=10), 12.5, 21),  # whichever asks for more
    ],
)
def test_bounds_remove_the_oldest_segments(policy: RetentionPolicy, now_s: float, earliest: int) -> None:
    assert planned(policy, now_s=now_s) == RetentionPlan(earliest)


@pytest.mark.parametrize(
    ("holds", "earliest"),
    [
        ([], 41),
        ([group("a", 41)], 41),
        ([group("a", 40)], 31),
        ([group("a", 25), group("b", 41)], 21),
        ([group("a", 1)], 1),
        ([group("other", 1)], 41),  # not named by the policy
        ([pin(12)], 11),
        ([group("a", 35), pin(12)], 11),
    ],
)
def test_groups_and_pins_keep_contents_beyond_the_bounds(holds: list[Hold], earliest: int) -> None:
    assert planned(RetentionPolicy(bytes=0, groups=("a", "b")), *holds) == RetentionPlan(earliest)


@pytest.mark.parametrize(
    ("holds", "earliest"),
    [
        ([], 1),  # no group opened, so no content is confirmed
        ([group("a", 25)], 21),
        ([group("a", 51)], 41),
        ([group("a", 25), group("b", 15)], 11),
        ([group("other", 51)], 1),
        ([pin(51)], 1),
        ([group("a", 51), pin(15)], 11),
    ],
)
def test_contents_are_removed_once_confirmed_by_all_groups(holds: list[Hold], earliest: int) -> None:
    assert planned(RetentionPolicy(groups=("a", "b")), *holds) == RetentionPlan(earliest)


def test_the_hard_limit_overrides_holds_and_reports_their_losses() -> None:
    policy = RetentionPolicy(groups=("a", "b"), hard_bytes=250)
    assert planned(policy, group("a", 1), group("b", 25), group("other", 1), pin(12)) == RetentionPlan(
        31, (Loss("a", group=True, first=1, end=31), Loss("b", True, 25, 31), Loss("reader", False, 12, 31))
    )


def test_the_hard_limit_removes_as_few_segments_as_possible() -> None:
    assert planned(RetentionPolicy(bytes=0, hard_bytes=400), pin(1)) == RetentionPlan(
        11, (Loss("reader", False, 1, 11),)
    )
    assert planned(RetentionPolicy(hard_bytes=500), pin(1)) == RetentionPlan(1)


def test_the_hard_limit_keeps_the_newest_segment() -> None:
    assert planned(RetentionPolicy(hard_bytes=0)).earliest == 41
    assert planned(RetentionPolicy(hard_bytes=0), count=1) == RetentionPlan(1)


def test_a_loss_is_reported_once() -> None:
    infos = segments()[2:]
    result = plan(
        infos,
        total_bytes=300,
        next_sequence=51,
        policy=RetentionPolicy(groups=("a",), hard_bytes=200),
        holds=[group("a", 5)],
        too_old=before(0),
    )
    assert result == RetentionPlan(31, (Loss("a", True, 21, 31),))


def test_a_plan_examines_as_few_segments_as_possible() -> None:
    def some() -> Iterator[SegmentInfo]:
        yield from segments(3)
        raise AssertionError("looked too far")

    result = plan(
        some(),
        total_bytes=1000,
        next_sequence=51,
        policy=RetentionPolicy(bytes=900),
        holds=(),
        too_old=before(0),
    )
    assert result == RetentionPlan(11)


@given(
    st.integers(1, 8),
    st.builds(
        RetentionPolicy,
        bytes=st.none() | st.integers(0, 900),
        age_s=st.none() | st.integers(0, 10).map(float),
        contents=st.none() | st.integers(0, 90),
        groups=st.sampled_from([(), ("a",), ("a", "b")]),
        hard_bytes=st.none() | st.integers(0, 900),
    ),
    st.lists(st.builds(Hold, st.sampled_from("ab"), st.integers(1, 81), st.booleans()), max_size=4),
    st.integers(0, 20),
)
def test_whole_segments_are_removed_but_never_the_newest(
    count: int, policy: RetentionPolicy, holds: list[Hold], now_s: int
) -> None:
    infos = segments(count)
    result = planned(policy, *holds, now_s=now_s, count=count)
    assert result.earliest in [info.base for info in infos]
    left = sum(info.bytes for info in infos if info.base >= result.earliest)
    if policy.hard_bytes is not None:
        assert left <= policy.hard_bytes or result.earliest == infos[-1].base
    binding = [hold for hold in holds if not hold.group or hold.name in policy.groups]
    lost = {(hold.name, hold.group) for hold in binding if hold.position < result.earliest}
    assert lost == {(loss.name, loss.group) for loss in result.losses}
    if policy.hard_bytes is None:
        assert not lost


def test_a_segment_of_unknown_age_ends_the_plan() -> None:
    known, unknown, *rest = segments()
    infos = [known, SegmentInfo(unknown.base, unknown.end, unknown.bytes, None), *rest]

    def by(policy: RetentionPolicy) -> RetentionPlan:
        return plan(
            infos, total_bytes=500, next_sequence=51, policy=policy, holds=(), too_old=before(100 * SECOND)
        )

    assert by(RetentionPolicy(age_s=10)) == RetentionPlan(11, unknown=11)
    assert by(RetentionPolicy(bytes=0, age_s=10)) == RetentionPlan(41)  # its age does not decide
