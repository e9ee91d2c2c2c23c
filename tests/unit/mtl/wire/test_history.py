"""The point where a log parts from the log of a position. PROTOCOL.md 5.1.1."""

from __future__ import annotations

import pytest

from mtl.wire.history import History

ONE, TWO, THREE = "1.aaaaaaaa", "2.bbbbbbbb", "3.cccccccc"
HISTORY = History(((1, ONE), (11, TWO), (21, THREE)), 31)


@pytest.mark.parametrize(
    ("position", "epoch"), [(1, None), (2, ONE), (11, ONE), (12, TWO), (22, THREE), (31, THREE), (99, THREE)]
)
def test_the_epoch_of_a_position_is_that_of_the_preceding_content(position: int, epoch: str | None) -> None:
    assert HISTORY.epoch_of(position) == epoch


def test_contents_older_than_the_history_have_no_epoch() -> None:
    history = History(((11, ONE),), 21)
    assert (history.epoch_of(11), history.epoch_of(12)) == (None, ONE)
    assert history.diverges_at(11, None) is None


@pytest.mark.parametrize(
    ("position", "epoch", "diverges_at"),
    [
        (11, ONE, None),
        (12, ONE, 11),  # the log lost its contents of epoch 1 above 10, and continued with epoch 2
        (21, TWO, None),
        (22, TWO, 21),
        (31, THREE, None),
        (32, THREE, 31),
        (31, None, None),
        (32, None, 31),
        (25, "3.dddddddd", 21),  # another copy, which began its own epoch 3
        (15, "2.dddddddd", 11),
        (40, "9.dddddddd", 31),
        (5, "1.dddddddd", 1),  # another log from the beginning
        (5, "9.dddddddd", 5),  # unknown, and nothing says that it parts before
    ],
)
def test_where_a_log_diverges_from_the_log_of_a_position(
    position: int, epoch: str, diverges_at: int | None
) -> None:
    assert HISTORY.diverges_at(position, epoch) == diverges_at


def test_an_epoch_without_contents_does_not_count() -> None:
    history = History(((1, ONE), (11, TWO)), 11)
    assert history.diverges_at(11, ONE) is None
    assert history.diverges_at(12, TWO) == 11
    assert history.has_epoch(TWO), "later contents will belong to it"


def test_epochs_older_than_the_history_are_accepted() -> None:
    history = History(((21, THREE),), 31)
    assert history.diverges_at(21, TWO) is None
    assert history.diverges_at(22, TWO) == 21
    assert history.has_epoch(ONE)
    assert not history.has_epoch("3.dddddddd")


def test_the_history_of_an_empty_log_and_a_missing_history() -> None:
    assert History((), 1).diverges_at(11, ONE) == 1
    assert History.of(None, 5).epoch_of(3) is None
    assert History.of([(1, ONE)], 5).epoch_of(3) == ONE
    assert not History((), 1).has_epoch(ONE)
