from __future__ import annotations

from dataclasses import dataclass, field

from mtl.doors.unsent import Unsent, Windows


@dataclass(eq=False)
class Subscriptions:
    """Subscriptions by their names, and the names of those that were ended."""

    pool: Unsent
    ended: list[str] = field(default_factory=list)
    known: dict[str, One] = field(default_factory=dict)

    def take(self, name: str, octets: int, owner: str = "alice") -> None:
        self.pool.replace(self.known.setdefault(name, One(name, self)), owner, octets)


@dataclass(eq=False)
class One:
    name: str
    at: Subscriptions

    def end_slow(self) -> None:
        self.at.ended.append(self.name)


def test_above_the_share_of_an_owner_its_subscription_that_has_waited_longest_is_ended() -> None:
    at = Subscriptions(Unsent(100, 30))
    at.take("bob's", 30, "bob")
    at.take("first", 10)
    at.take("second", 10)
    at.take("first", 10)  # the former contents were sent: it waits from now on
    assert not at.ended
    at.take("third", 15)
    assert at.ended == ["second"]
    at.take("fourth", 25)
    assert at.ended == ["second", "first", "third"]
    assert at.pool.used == 30 + 25


def test_a_single_subscription_may_have_one_content_above_the_share() -> None:
    at = Subscriptions(Unsent(100, 30))
    at.take("first", 31)
    at.take("first", 32)
    assert not at.ended
    at.take("second", 1)
    assert at.ended == ["first"]


def test_above_the_total_a_subscription_of_the_owner_with_the_most_octets_is_ended() -> None:
    at = Subscriptions(Unsent(50, 30))
    at.take("large", 15, "alice")
    at.take("larger", 15, "alice")
    at.take("bob's", 15, "bob")
    assert not at.ended
    at.take("carol's", 10, "carol")
    assert at.ended == ["large"]
    assert at.pool.used == 40


def test_sent_octets_and_ended_subscriptions_do_not_count() -> None:
    at = Subscriptions(Unsent(50, 30))
    for _ in range(100):
        at.take("first", 20)
        at.take("first", 0)
        at.take("second", 20)
        at.take("second", 0)
    assert (at.ended, at.pool.used) == ([], 0)


def test_the_windows_of_an_owner_become_smaller_and_their_sum_is_bounded() -> None:
    windows = Windows(1_000, 10, 100)
    taken = [windows.take("alice") for _ in range(50)]
    assert taken[:3] == [100, 100, 100]
    assert taken == sorted(taken, reverse=True)
    assert taken[-1] == 10
    assert sum(taken) <= 1_000 + 50 * 10
    assert windows.take("bob") == 100
    for window in taken[:8]:
        windows.free("alice", window)
    assert windows.take("alice") > 10
