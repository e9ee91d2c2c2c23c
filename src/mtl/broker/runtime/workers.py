"""Performs actions other than sends: on storage in threads, by lane, or in the loop; on passwords in a thread.

Handing a group to a thread and back wakes two cold threads, which costs an idle broker about as much as the sync. So
the loop writes a small group itself when nothing else is with the disk, nothing waits on the sockets, and the disk was
fast lately. A message that arrives meanwhile waits for that one sync, as it would for the next group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from mtl.broker import limits as broker_limits
from mtl.broker.actions import CheckPassword
from mtl.broker.fair_queue import FairQueue
from mtl.protocol.sasl.scram import proves
from mtl.storage.api import (
    AnsweredAction,
    Append,
    CreateLog,
    DropLogs,
    Engine,
    Lane,
    LogAction,
    Mark,
    Prepare,
    Read,
    Save,
    StorageAction,
    WriterAction,
)

_CHANGES = WriterAction | Mark

_REMEMBERED = 0.9
"""Decay of the slowest duration: a disk that took 50 ms once counts as slow for the next 38 groups."""


class ThreadWorkers:
    """`answer` gets an action's number and its result, in any thread. A result that is an exception other than
    `StorageError` is a bug of the engine. `quiet` says whether nothing waits on the sockets; `clock` is in monotonic
    seconds.
    """

    def __init__(
        self,
        engine: Engine,
        answer: Callable[[int, object], None],
        quiet: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._answer = answer
        self._clock = clock
        self._commits = Commits(quiet)
        self._changes: list[LogAction] = []
        self._passwords = ThreadPoolExecutor(1, "mtl-passwords")
        self._lanes: dict[Lane, _Lane] = {}
        self._under_way: dict[int, AnsweredAction] = {}

    @property
    def under_way(self) -> list[AnsweredAction]:
        """The actions that the engine is performing, except reads: those that a clean stop waits for."""
        # A copy first, in one step: threads add and remove actions meanwhile.
        return [action for action in list(self._under_way.values()) if not isinstance(action, Read)]

    def begin(self, action: StorageAction | CheckPassword) -> None:
        """Have an action performed in a thread; changes of a log wait for the end of the turn."""
        if isinstance(action, CheckPassword):
            self._passwords.submit(self._check, action)
        elif isinstance(action, _CHANGES):
            self._changes.append(action)
        else:
            self._lane(action).append(action)

    def end_turn(self) -> list[tuple[int, object]]:
        """Begin group commits and other changes of logs; returns the results of those that were performed at once."""
        actions, self._changes = self._changes, []
        if self._commits.are_for_the_loop(actions) and not self._engine.lane(actions[0]).together:
            return [(actions[0].id, self._timed(actions)[0])]
        for action in actions:
            self._commits.started(action.id)
            self._lane(action).append(action)
        return []

    def finished(self, number: int) -> None:
        """The core has the result of an action."""
        self._commits.finished(number)

    def run_between_saves(self, work: Callable[[], None]) -> None:
        """Run a function in the lane of `Save`, between two of them."""
        self._lane(Save(0, ())).pool.submit(work)

    def run_unawaited(self, work: Callable[[], object]) -> None:
        """Run a function whose result is not needed."""
        self._passwords.submit(work)

    def shutdown(self) -> None:
        """Wait until all begun actions are performed; reads and password checks that have not begun are cancelled."""
        self._passwords.shutdown(cancel_futures=True)
        for lane in self._lanes.values():
            lane.shutdown()

    def _check(self, action: CheckPassword) -> None:
        """On a thread."""
        result: object
        try:
            result = proves(action.password, action.verifier)
        except BaseException as e:  # noqa: BLE001 a bug, as below
            result = e
        self._answer(action.id, result)

    def _lane(self, action: StorageAction) -> _Lane:
        lane = self._engine.lane(action)
        threads = self._lanes.get(lane)
        if threads is None:
            threads = self._lanes[lane] = _Lane(lane, self._perform, cancels=isinstance(action, Read))
        return threads

    def _perform(self, actions: Sequence[StorageAction]) -> None:
        """On a thread."""
        results: Sequence[object]
        try:
            results = self._timed(actions)
        except BaseException as e:  # noqa: BLE001 a bug: the loop raises it instead of waiting for a result
            results = [e] * len(actions)
        for action, result in zip(actions, results, strict=True):
            if not isinstance(action, Prepare | DropLogs):
                self._answer(action.id, result)

    def _timed(self, actions: Sequence[StorageAction]) -> Sequence[object]:
        answered = {x.id: x for x in actions if not isinstance(x, Prepare | DropLogs)}
        self._under_way |= answered
        began = self._clock()
        try:
            return self._engine.perform(actions)
        finally:
            if any(isinstance(action, _CHANGES) for action in actions):
                self._commits.record_duration(self._clock() - began)
            for number in answered:
                del self._under_way[number]


class _Lane:
    """The threads of a lane, and its waiting actions, which a shutdown cancels if the lane `cancels`. Users take turns
    with the logs that they have made, and with reads; all other actions are performed in order.
    """

    def __init__(
        self, lane: Lane, perform: Callable[[Sequence[StorageAction]], None], *, cancels: bool
    ) -> None:
        self._cancels = cancels
        self.pool = ThreadPoolExecutor(lane.threads, f"mtl-{lane.name}")
        self._together = lane.together
        self._perform = perform
        self._waiting: FairQueue[StorageAction] = FairQueue()
        self._lock = Lock()
        """Held for the queue's own steps only."""

    def append(self, action: StorageAction) -> None:
        """Append an action to the lane."""
        with self._lock:
            self._waiting.append(action.share if isinstance(action, CreateLog | Read) else "", action)
        self.pool.submit(self._next)

    def _next(self) -> None:
        """Perform the next action, or the waiting ones together; none when an earlier call performed them."""
        with self._lock:
            most = broker_limits.ACTIONS_TOGETHER if self._together else 1
            actions = [self._waiting.pop() for _ in range(min(most, len(self._waiting)))]
        if actions:
            self._perform(actions)

    def shutdown(self) -> None:
        """Wait until the actions that have begun, and those that are not cancelled, are performed."""
        self.pool.shutdown(cancel_futures=self._cancels)


class Commits:
    """Decides whether the loop performs an action on a log itself. `quiet`: whether nothing waits on the sockets."""

    def __init__(self, quiet: Callable[[], bool]) -> None:
        self._quiet = quiet
        self._started: set[int] = set()
        self._slowest_s = broker_limits.LOOP_COMMIT_S
        """Duration of the slowest commit, in seconds; it counts for less with every further one."""

    def are_for_the_loop(self, actions: Sequence[LogAction]) -> bool:
        """Whether the loop should perform these actions itself."""
        return len(actions) == 1 and not self._started and self._small(actions[0]) and self._quiet()

    def started(self, number: int) -> None:
        """A thread performs this action."""
        self._started.add(number)

    def finished(self, number: int) -> None:
        """An action has ended, in the loop or in a thread."""
        self._started.discard(number)

    def record_duration(self, seconds: float) -> None:
        """Record the duration of an action, or of a batch of them; safe from any thread."""
        self._slowest_s = max(seconds, self._slowest_s * _REMEMBERED)

    def _small(self, action: LogAction) -> bool:
        if not isinstance(action, Append) or self._slowest_s >= broker_limits.LOOP_COMMIT_S:
            return False
        return sum(draft.size for draft in action.drafts) <= broker_limits.LOOP_COMMIT
