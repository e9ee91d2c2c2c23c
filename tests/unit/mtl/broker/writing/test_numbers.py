from __future__ import annotations

from mtl.broker.writing.numbers import WriterNumbers


def test_a_number_is_first_accepted_and_then_durable() -> None:
    numbers = WriterNumbers({7: 3})
    assert (numbers.durable(7), numbers.accepted(7), numbers.durable("unknown")) == (3, 3, 0)
    numbers.accept(7, 9)
    numbers.set_durable(7, 5)
    assert (numbers.durable(7), numbers.accepted(7)) == (5, 9)
    numbers.set_durable(7, 4)
    assert numbers.durable(7) == 5


def test_dropped_numbers_may_be_repeated() -> None:
    numbers = WriterNumbers({7: 3})
    numbers.accept(7, 9)
    numbers.drop(7, 6)
    assert numbers.accepted(7) == 6
    numbers.drop(7, 0)
    assert numbers.accepted(7) == 3


def test_a_forgotten_writer_is_not_restored_by_late_results() -> None:
    numbers = WriterNumbers({7: 3})
    numbers.forget(7)
    numbers.set_durable(7, 9)
    numbers.drop(7, 9)
    assert not numbers.has_writer(7)
    assert (numbers.durable(7), numbers.accepted(7)) == (0, 0)
    numbers.restore({7: 2})
    assert (numbers.has_writer(7), numbers.durable(7), numbers.accepted(7)) == (True, 2, 2)
