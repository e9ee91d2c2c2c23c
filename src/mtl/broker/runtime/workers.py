"""Performs what is not a send: storage actions on threads, lane by lane, or on the loop; passwords on a thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from mtl.broker.actions import CheckPassword
from mtl.broker.runtime.commit import Commits
from mtl.protocol.sasl.scram import proves
from mtl.storage.api import (
    AnsweredAction,
    DropLogs,
    Engine,
    Lane,
    LogAction,
    Mark,
    Prepare,
    Save,
    StorageAction,
    WriterAction,
)

_CHANGES = WriterAction | Mark


class ThreadWorkers:
    """`answer` gets an action's number and its result, on any thread. A result that is an exception and no
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
        """What the engine is performing."""
        return list(self._under_way.values())

    def begin(self, action: StorageAction | CheckPassword) -> None:
        """Have an action performed on a thread; what changes a log waits for the end of the turn."""
        if isinstance(action, CheckPassword):
            self._passwords.submit(self._check, action)
        elif isinstance(action, _CHANGES):
            self._changes.append(action)
        else:
            self._lane(action).put(action)

    def end_turn(self) -> list[tuple[int, object]]:
        """Begin group commits and other changes of logs; the results of those that were performed at once."""
        actions, self._changes = self._changes, []
        if self._commits.are_for_the_loop(actions) and not self._engine.lane(actions[0]).together:
            return [(actions[0].id, self._timed(actions)[0])]
        for action in actions:
            self._commits.started(action.id)
            self._lane(action).put(action)
        return []

    def finished(self, number: int) -> None:
        """The core has the result of an action."""
        self._commits.finished(number)

    def look(self, work: Callable[[], None]) -> None:
        """Run something between two `Save`s."""
        self._lane(Save(0, ())).pool.submit(work)

    def aside(self, work: Callable[[], object]) -> None:
        """Run something that nobody waits for."""
        self._passwords.submit(work)

    def shutdown(self) -> None:
        """Wait until everything that was begun is performed, but for passwords that wait to be checked."""
        self._passwords.shutdown(cancel_futures=True)
        for lane in self._lanes.values():
            lane.pool.shutdown()

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
        found = self._lanes.get(lane)
        if found is None:
            found = self._lanes[lane] = _Lane(lane, self._perform)
        return found

    def _perform(self, actions: Sequence[StorageAction]) -> None:
        """On a thread."""
        results: Sequence[object]
        try:
            results = self._timed(actions)
        except BaseException as e:  # noqa: BLE001 a bug: the loop must die of it, loudly, and not wait for ever
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
                self._commits.took(self._clock() - began)
            for number in answered:
                del self._under_way[number]


class _Lane:
    """The threads of a lane, and what waits for them."""

    def __init__(self, lane: Lane, perform: Callable[[Sequence[StorageAction]], None]) -> None:
        self.pool = ThreadPoolExecutor(lane.threads, f"mtl-{lane.name}")
        self._together = lane.together
        self._perform = perform
        self._waiting: deque[StorageAction] = deque()

    def put(self, action: StorageAction) -> None:
        """The next in line."""
        self._waiting.append(action)
        self.pool.submit(self._next)

    def _next(self) -> None:
        """One action, or all that wait; none when the turn before took them."""
        actions: list[StorageAction] = []
        while self._waiting and (self._together or not actions):
            actions.append(self._waiting.popleft())
        if actions:
            self._perform(actions)
