from __future__ import annotations

import pytest

from mtl.broker import limits as broker_limits
from mtl.broker.runtime.workers import Commits
from mtl.log.chunk import NewChunk
from mtl.storage.api import Append, Draft, LogAction, Trim

QUICK_S = broker_limits.LOOP_COMMIT_S / 10


class Setting:
    """Group commits beside a scripted loop, and a disk that needs `disk_s` seconds for each action."""

    def __init__(self) -> None:
        self.disk_s = QUICK_S
        self.quiet = True
        self.threads: list[LogAction] = []
        self.commits = Commits(lambda: self.quiet)

    def run(self) -> list[int]:
        """The actions that the threads performed; their ends are reported to the loop."""
        ran, self.threads = self.threads, []
        for action in ran:
            self._perform(action)
        return [action.id for action in ran]

    def here(self, *actions: LogAction) -> bool:
        """Whether the loop performed these actions itself."""
        here = self.commits.are_for_the_loop(actions)
        for action in actions:
            if here:
                self._perform(action)
            else:
                self.commits.started(action.id)
                self.threads.append(action)
        return here

    def _perform(self, action: LogAction) -> None:
        self.commits.record_duration(self.disk_s)
        self.commits.finished(action.id)


def group(number: int, octets: int = 100) -> Append:
    return Append(number, "log", (Draft((bytes(octets),), None, ()),), 0)


def pack(number: int, octets: int) -> Append:
    return Append(number, "log", (NewChunk(1, bytes(octets)),), 0)


@pytest.fixture
def at() -> Setting:
    """A setting whose disk has been measured as quick."""
    setting = Setting()
    assert not setting.here(group(1)), "nothing is known of the disk before the first group"
    assert setting.run() == [1]
    return setting


def test_a_small_group_of_an_idle_broker_is_written_by_the_loop(at: Setting) -> None:
    assert at.here(group(2))
    assert at.here(pack(3, broker_limits.LOOP_COMMIT))
    assert at.threads == []


def test_a_large_group_is_not_written_by_the_loop(at: Setting) -> None:
    assert not at.here(pack(2, broker_limits.LOOP_COMMIT + 1))
    assert at.run() == [2]
    assert not at.here(group(3, broker_limits.LOOP_COMMIT + 1))


def test_other_actions_of_logs_are_not_performed_by_the_loop(at: Setting) -> None:
    assert not at.here(Trim(2, "log", 1))


def test_the_loop_writes_no_group_while_messages_or_actions_wait(at: Setting) -> None:
    at.quiet = False
    assert not at.here(group(2))
    at.quiet = True
    assert not at.here(group(3)), "2 is with the disk"
    assert at.run() == [2, 3]
    assert not at.here(group(4), group(5)), "two can be synced at once"
    assert at.run() == [4, 5]
    assert at.here(group(6))


def test_after_a_slow_write_the_loop_writes_no_group_for_a_while(at: Setting) -> None:
    at.disk_s = 0.05
    assert at.here(group(2)), "this one shows it"
    at.disk_s = QUICK_S
    for number in range(3, 41):
        assert not at.here(group(number))
        assert at.run() == [number]
    assert at.here(group(41))
