from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest

from mtl.broker import limits as broker_limits
from mtl.broker.actions import CheckPassword
from mtl.broker.runtime.workers import ThreadWorkers
from mtl.protocol.sasl.scram import make_verifier
from mtl.storage.api import (
    Append,
    CreateLog,
    Draft,
    DropLogs,
    Lane,
    LogAction,
    LogOptions,
    Prepare,
    Save,
    StorageAction,
    Trim,
)
from mtl.storage.memory import MemoryEngine

WAIT_S = 30.0


class Engine(MemoryEngine):
    """An engine that answers with the numbers of the actions. `together`: all actions in batches; otherwise a lane for
    records, and one of
    two threads. What is performed waits for `go`.
    """

    def __init__(self, *, together: bool = False) -> None:
        super().__init__()
        self.together = together
        self.batches: list[list[StorageAction]] = []
        self.go = threading.Event()
        self.go.set()
        self.begun = threading.Semaphore(0)
        self.bug = False

    def lane(self, action: StorageAction) -> Lane:
        if self.together:
            return Lane("all", together=True)
        return Lane("records") if isinstance(action, Save | DropLogs | CreateLog) else Lane("logs", 2)

    def perform(self, actions: Sequence[StorageAction]) -> Sequence[object]:
        self.batches.append(list(actions))
        self.begun.release()
        assert self.go.wait(WAIT_S)
        if self.bug:
            raise AssertionError("a bug")
        return [f"done {getattr(action, 'id', None)}" for action in actions]


class Setting:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.answers: dict[int, object] = {}
        self.workers = ThreadWorkers(engine, self._answer, lambda: True, lambda: 0.0)

    def _answer(self, number: int, result: object) -> None:
        self.answers[number] = result

    def change(self, actions: Sequence[LogAction]) -> list[tuple[int, object]]:
        """Perform these actions at the end of a turn."""
        for action in actions:
            self.workers.begin(action)
        return self.workers.end_turn()

    def end(self) -> dict[int, object]:
        self.engine.go.set()
        self.workers.shutdown()
        return self.answers


def group(number: int, log: str = "a") -> Append:
    return Append(number, log, (Draft((b"x",), None, ()),), 0)


def test_actions_of_a_lane_with_one_thread_are_performed_in_order() -> None:
    at = Setting(Engine())
    for number in range(1, 6):
        at.workers.begin(Save(number, ()))
    at.workers.begin(DropLogs(()))
    assert at.end() == {n: f"done {n}" for n in range(1, 6)}
    assert [getattr(batch, "id", None) for (batch,) in at.engine.batches] == [1, 2, 3, 4, 5, None]


def test_users_take_turns_with_the_logs_that_they_create() -> None:
    at = Setting(Engine())
    at.engine.go.clear()
    at.workers.begin(Save(1, ()))
    assert at.engine.begun.acquire(timeout=WAIT_S)
    for number, share in enumerate("aaaab", 2):
        at.workers.begin(CreateLog(number, f"{share}{number}", LogOptions(), b"", share))
    at.end()
    created = [batch[0] for batch in at.engine.batches[1:]]
    assert [x.share for x in created if isinstance(x, CreateLog)] == ["a", "b", "a", "a", "a"]


def test_a_batch_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "ACTIONS_TOGETHER", 2)
    at = Setting(Engine(together=True))
    at.engine.go.clear()
    for number in range(1, 6):
        at.workers.begin(Save(number, ()))
    assert at.end() == {n: f"done {n}" for n in range(1, 6)}
    assert max(map(len, at.engine.batches)) == 2


def test_actions_of_logs_do_not_wait_for_records_or_other_logs() -> None:
    at = Setting(Engine())
    at.engine.go.clear()
    at.workers.begin(Save(1, ()))
    actions: list[LogAction] = [group(2, "a"), group(3, "b")]
    assert at.change(actions) == []
    for _ in range(3):
        assert at.engine.begun.acquire(timeout=WAIT_S)
    assert {action.id for action in at.workers.under_way} == {1, 2, 3}
    assert at.end() == {n: f"done {n}" for n in (1, 2, 3)}
    assert at.workers.under_way == []


def test_waiting_actions_of_a_gathering_lane_are_one_batch() -> None:
    at = Setting(Engine(together=True))
    at.engine.go.clear()
    at.workers.begin(Save(1, ()))
    assert at.engine.begun.acquire(timeout=WAIT_S)
    at.workers.begin(Save(2, ()))
    assert at.change([group(3)]) == []
    at.workers.begin(Prepare(None))  # type: ignore[arg-type]  # nothing looks at it
    at.workers.begin(Save(4, ()))
    assert at.end() == {n: f"done {n}" for n in (1, 2, 3, 4)}
    first, second = at.engine.batches
    assert first == [Save(1, ())]
    assert [type(x) for x in second] == [Save, Append, Prepare, Save]


def test_a_small_group_of_an_idle_broker_is_performed_by_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    at = Setting(Engine())
    at.change([Trim(1, "a", 1)])
    at.end()
    at.workers.finished(1)
    assert at.change([group(2)]) == [(2, "done 2")]
    assert 2 not in at.answers
    monkeypatch.setattr(broker_limits, "LOOP_COMMIT_S", 0.0)
    at.engine.together = True
    assert at.change([group(3)]) == []
    at.end()


def test_a_gathering_engine_is_never_called_by_the_loop() -> None:
    at = Setting(Engine(together=True))
    for number in range(1, 4):
        assert at.change([group(number)]) == []
        at.workers.finished(number)
    assert len(at.end()) == 3


def test_an_exception_of_the_engine_answers_every_action_of_the_batch() -> None:
    at = Setting(Engine(together=True))
    at.engine.bug = True
    at.workers.begin(Save(1, ()))
    at.change([group(2)])
    assert [str(x) for x in at.end().values()] == ["a bug", "a bug"]
    assert at.workers.under_way == []


def test_a_function_runs_between_two_saves() -> None:
    at = Setting(Engine())
    answers: list[int] = []
    at.engine.go.clear()
    at.workers.begin(Save(1, ()))
    at.workers.run_between_saves(lambda: answers.append(len(at.answers)))
    at.workers.begin(Save(2, ()))
    at.end()
    assert answers == [1]


def test_a_password_check_does_not_wait_for_other_actions() -> None:
    at = Setting(Engine())
    at.engine.go.clear()
    at.workers.begin(Save(1, ()))
    verifier = make_verifier("secret", bytes(16), 4096)
    at.workers.begin(CheckPassword(2, "secret", verifier))
    done = threading.Event()
    at.workers.run_unawaited(done.set)
    assert done.wait(WAIT_S)
    assert at.answers == {2: True}
    at.end()
