from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from demo_job.chaos import (
    BLOWS,
    BROKER,
    LEAST_BATCHES,
    QUERY,
    Blow,
    Chaos,
    Hook,
    Interruption,
    Moment,
    Scene,
    Sight,
    plan,
    struck,
)
from demo_job.processes import Failed
from demo_job.progress import Checkpoint
from hypothesis import given
from hypothesis import strategies as st

# --- the plan -----------------------------------------------------------------------------------------------


@given(batches=st.integers(LEAST_BATCHES, 50), seed=st.integers())
def test_every_kill_has_a_later_batch_and_spares_first_and_last(batches: int, seed: int) -> None:
    blows = plan(batches, seed)
    assert [(blow.moment, blow.victims) for blow in blows] == list(BLOWS)
    numbers = [blow.batch for blow in blows]
    assert numbers == sorted(set(numbers))
    assert numbers[0] >= 1
    assert numbers[-1] < batches - 1


def test_both_are_killed_between_the_answer_and_the_commit_log() -> None:
    killed = {victim for moment, victims in BLOWS if moment is Moment.ANSWERED for victim in victims}
    assert killed == {QUERY, BROKER}


def test_the_plan_follows_the_seed() -> None:
    assert plan(12, 1) == plan(12, 1)
    assert plan(12, 1) != plan(12, 2)


def test_too_few_batches_are_refused() -> None:
    with pytest.raises(ValueError, match="too few"):
        plan(LEAST_BATCHES - 1, 0)


# --- the moments --------------------------------------------------------------------------------------------

PLANNED = Sight(planned=3, committed=2, answered=2)
STAGED = Sight(planned=3, committed=2, answered=2, staged={3})
ANSWERED = Sight(planned=3, committed=2, answered=3)
DONE = Sight(planned=3, committed=3, answered=3)


@pytest.mark.parametrize(
    ("moment", "sights"),
    [
        (Moment.READING, [PLANNED]),
        (Moment.WRITING, [STAGED]),
        (Moment.ANSWERED, [ANSWERED]),
        (Moment.AMIDST, [PLANNED, STAGED]),
    ],
)
def test_a_moment_is_recognised_by_observable_state(moment: Moment, sights: list[Sight]) -> None:
    blow = Blow(moment, (QUERY,), batch=3)
    assert [sight for sight in (PLANNED, STAGED, ANSWERED, DONE) if struck(blow, sight) == 3] == sights


def test_stages_of_an_earlier_batch_do_not_count() -> None:
    left_over = Sight(planned=3, committed=2, answered=2, staged={1})
    assert struck(Blow(Moment.READING, (BROKER,), 3), left_over) == 3
    assert struck(Blow(Moment.WRITING, (BROKER,), 3), left_over) is None


@pytest.mark.parametrize("batch", [1, 2, 3])
def test_a_missed_kill_is_moved_to_a_later_batch(batch: int) -> None:
    assert struck(Blow(Moment.WRITING, (BROKER,), batch), STAGED) == 3


def test_no_kill_happens_before_its_batch() -> None:
    assert struck(Blow(Moment.AMIDST, (QUERY,), 4), PLANNED) is None


# --- striking -----------------------------------------------------------------------------------------------


class Stageplay:
    """Query, broker and connection that only record their calls, over a real checkpoint directory."""

    def __init__(self, place: Path) -> None:
        self.checkpoint = Checkpoint(place / "checkpoint")
        self.hook = Hook(place / "answered")
        self.acts: list[str] = []
        self.lines: list[str] = []
        self.staged: list[int] = []
        self.replays = 0
        self.during_jitter: Callable[[], None] = lambda: None
        for log in ("offsets", "commits"):
            (place / "checkpoint" / log).mkdir(parents=True)
        (place / "checkpoint" / "metadata").write_text('{"id":"q"}', encoding="utf-8")

    def chaos(self, *blows: Blow) -> Chaos:
        scene = Scene(
            query=cast("Any", self._actor(QUERY)),
            broker=cast("Any", self._actor(BROKER)),
            connection=cast("Any", SimpleNamespace(stages=self._stages)),
            checkpoint=self.checkpoint,
            hook=self.hook,
            contents=95,
            limit=10,
        )
        return Chaos(scene, list(blows), self.lines.append)

    def plan(self, batch: int) -> None:
        (self.checkpoint.directory / "offsets" / str(batch)).touch()

    def commit(self, batch: int) -> None:
        (self.checkpoint.directory / "commits" / str(batch)).touch()

    def answer(self, batch: int) -> None:
        self.hook.path.write_text(str(batch), encoding="utf-8")

    def is_held(self) -> bool:
        return self.hook.path.with_name("answered.hold").exists()

    def _actor(self, name: str) -> object:
        return SimpleNamespace(
            kill=lambda: self.acts.append(f"kill {name}"),
            start=lambda: self.acts.append(f"start {name}"),
            wait=lambda _timeout: self.during_jitter(),
            tail=lambda: "the log",
        )

    def _stages(self, application: str) -> object:
        assert application == "q"
        return SimpleNamespace(
            stages=[SimpleNamespace(version=version) for version in self.staged],
            applications=[SimpleNamespace(replays=self.replays)],
        )


@pytest.fixture
def play(tmp_path: Path) -> Stageplay:
    return Stageplay(tmp_path)


def test_both_are_killed_before_the_commit_log_and_the_replay_is_detected(play: Stageplay) -> None:
    chaos = play.chaos(Blow(Moment.ANSWERED, (QUERY, BROKER), batch=1))
    play.plan(0)
    chaos.step()
    assert not play.is_held()
    play.commit(0)
    chaos.step()
    assert play.is_held()
    play.plan(1)
    play.answer(1)
    chaos.step()
    assert play.acts == ["kill query", "kill broker", "start broker", "start query"]
    assert not play.is_held()
    assert play.lines == [
        (
            "killed the query and broker between the broker's answer to Stage.Commit of batch 1 "
            "and Spark's commit log (10 of 95 contents done)"
        )
    ]
    chaos.step()
    assert chaos.events[0].outcome == ""
    play.replays = 1
    play.commit(1)
    chaos.step()
    assert "which the broker knew" in chaos.events[0].outcome
    chaos.finish()


def test_an_unrecognised_replay_fails(play: Stageplay) -> None:
    chaos = play.chaos(Blow(Moment.ANSWERED, (QUERY,), batch=0))
    play.plan(0)
    play.answer(0)
    chaos.step()
    play.commit(0)
    with pytest.raises(Failed, match="no repeated commit"):
        chaos.finish()
    assert "did NOT recognise" in chaos.events[0].outcome


def test_a_kill_that_never_happened_fails(play: Stageplay) -> None:
    chaos = play.chaos(Blow(Moment.AMIDST, (QUERY,), batch=3))
    with pytest.raises(Failed, match="1 kills are missing"):
        chaos.finish()


def test_a_kill_too_late_after_its_jitter_is_moved_and_sooner(play: Stageplay) -> None:
    chaos = play.chaos(Blow(Moment.READING, (BROKER,), batch=0, jitter=0.2))
    play.plan(0)
    play.during_jitter = lambda: play.staged.append(0)
    chaos.step()
    assert play.acts == []
    play.during_jitter = lambda: None
    chaos.step()
    assert play.acts == []
    play.commit(0)
    play.plan(1)
    chaos.step()
    assert play.acts == ["kill broker", "start broker"]


def test_a_batch_that_ends_while_it_is_killed_does_not_count(play: Stageplay) -> None:
    chaos = play.chaos(Blow(Moment.AMIDST, (QUERY,), batch=0))
    scene = chaos._scene

    def kill() -> None:
        play.acts.append("kill query")
        play.commit(0)

    cast("Any", scene.query).kill = kill
    play.plan(0)
    chaos.step()
    assert play.acts == ["kill query", "start query"]
    assert chaos.events == []
    cast("Any", scene.query).kill = lambda: play.acts.append("kill query again")
    play.plan(1)
    chaos.step()
    assert play.acts[2:] == ["kill query again", "start query"]
    assert chaos.events[0].moment == "in the middle of batch 1"


def test_an_ended_query_is_restarted_once_per_kill(play: Stageplay) -> None:
    chaos = play.chaos(Blow(Moment.AMIDST, (BROKER,), batch=0))
    with pytest.raises(Failed, match="exit code 1:\nthe log"):
        chaos.ended(1)
    play.plan(0)
    chaos.step()
    chaos.ended(1)
    assert play.acts == ["kill broker", "start broker", "start query"]
    with pytest.raises(Failed, match="exit code 1"):
        chaos.ended(1)


def test_the_broker_is_killed_once_during_publishing() -> None:
    acts: list[str] = []
    broker = SimpleNamespace(kill=lambda: acts.append("kill"), start=lambda: acts.append("start"))
    interruption = Interruption(cast("Any", broker), at=50, contents=100, print_line=lambda _text: None)
    with pytest.raises(Failed, match="before the broker could be killed"):
        interruption.survived()
    for sent in (0, 49, 60, 100):
        interruption.moved(sent, sent - sent % 20)
    assert acts == ["kill", "start"]
    assert interruption.survived().progress == "60 of 100 contents sent, 60 confirmed"
