from __future__ import annotations

from functools import partial

import pytest
from benchmarks.measure import (
    START_SHARE,
    NotMeasured,
    Peer,
    Row,
    Sample,
    Subject,
    compare,
    interleave,
    percentile,
)

SUBJECT = Subject("w", "a workload", "rows/s")


def row(ours: float, theirs: float, **more: object) -> Row:
    return Row("w", "t", "p", "rows/s", ours=(ours,), theirs=(theirs,), **more)  # type: ignore[arg-type]


def test_sides_alternate_and_each_starts_a_round_once() -> None:
    calls: list[str] = []

    def side(name: str) -> Sample:
        calls.append(name)
        return Sample(1.0)

    samples = interleave({name: partial(side, name) for name in "abc"}, 3)
    assert "".join(calls) == "abc" + "abc" + "bca" + "cab"
    assert {name: len(found) for name, found in samples.items()} == {"a": 3, "b": 3, "c": 3}


def test_ratios_are_computed_within_a_round() -> None:
    ours, theirs = iter([9.0, 1.0, 4.0, 9.0]), iter([9.0, 2.0, 2.0, 3.0])
    (found,) = compare(
        SUBJECT, lambda: Sample(next(ours)), [Peer("p", lambda: Sample(next(theirs)), 2.0)], rounds=3
    )
    assert found.ratios == (0.5, 2.0, 3.0)
    assert (found.ratio, found.spread, found.reached) == (2.0, (0.5, 3.0), True)


def test_an_unavailable_peer_does_not_affect_others() -> None:
    def side() -> Sample:
        return Sample(1.0)

    peers = [Peer("here", side, 1.0), Peer("gone", None, 1.0, "there is no mvn")]
    here, gone = compare(SUBJECT, side, peers, rounds=1)
    assert here.reached
    assert (gone.missing, gone.ours, gone.ratios, gone.reached) == ("there is no mvn", (1.0,), (), None)


def test_a_target_may_be_an_upper_bound() -> None:
    assert row(2.0, 1.0, better="less", target=2.0).reached
    assert not row(2.1, 1.0, better="less", target=2.0).reached


@pytest.mark.parametrize(("share", "judged"), [(0.1, 0.9), (0.5, 0.4)])
def test_the_worse_ratio_counts_if_the_start_dominates(share: float, judged: float) -> None:
    found = row(0.9, 1.0, inner=(0.4,), target=0.7, facts={START_SHARE: share})
    assert found.judged == judged
    assert found.reached is (judged > 0.7)


def test_a_better_inner_ratio_does_not_improve_the_verdict() -> None:
    assert row(0.5, 1.0, inner=(2.0,), facts={f"peer: {START_SHARE}": 0.9}).judged == 0.5


def test_facts_of_both_sides_are_kept_as_medians() -> None:
    ours = iter([0.0, 1.0, 5.0, 2.0])
    peer = Peer("p", lambda: Sample(1.0, facts={"mb": 7.0}))
    (found,) = compare(SUBJECT, lambda: Sample(1.0, facts={"mb": next(ours)}), [peer], rounds=3)
    assert found.facts == {"mb": 2.0, "peer: mb": 7.0}


def test_percentiles_are_computed() -> None:
    values = [float(value) for value in range(1, 101)]
    assert [percentile(values, share) for share in (0.5, 0.99, 1.0)] == [50.0, 99.0, 100.0]
    assert percentile([3.0], 0.01) == 3.0


def test_not_measured_has_the_reason() -> None:
    assert str(NotMeasured("no mvn")) == "no mvn"
