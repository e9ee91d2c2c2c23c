"""Other failures of a query: retries, repeated batches, changed checkpoints.

Each is run on a bench, checks its own results, and returns a short description.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass

from pyspark_mtl.limits import WATCH_WAIT_S
from tests.kills.application import kill
from tests.kills.bench import LIMIT, Bench, Query
from tests.kills.holds import await_
from tests.kills.matrix import outcome
from tests.kills.wire import FROM_BROKER
from tests.support import standalone
from tests.support.queries import forget_commit

Play = Callable[[Bench, str], str]

IMPATIENT = {"requestTimeout": "500ms", "retryDeadline": "2s"}


@dataclass(frozen=True)
class Scene:
    """`play` runs the scene, with a label for its resources."""

    name: str
    play: Play


SCENES: list[Scene] = []


def scene(play: Play) -> Play:
    """Register a function under its name."""
    SCENES.append(Scene(play.__name__.replace("_", " "), play))
    return play


# --- tasks --------------------------------------------------------------------------------------------------


@scene
def a_task_is_retried(bench: Bench, label: str) -> str:
    """Its worker dies when the stage is sealed; a task may fail four times here."""
    query = bench.query(label, master="local[2,4]")
    kill(query.start_until("sealed"))
    return _with_a_stage_too_many(bench, query)


@scene
def a_task_runs_twice_by_speculation(bench: Bench, label: str) -> str:
    """One attempt hangs with its stage sealed, another one on another host overtakes it."""
    with standalone.cluster(bench.place / label, cores=2, hosts=("127.0.0.1", "127.0.0.2")) as master:
        query = bench.query(label, master=master)
        query.start_until("sealed")
        try:
            return _with_a_stage_too_many(bench, query)
        finally:
            query.application.kill()


def _with_a_stage_too_many(bench: Bench, query: Query) -> str:
    """Two attempts of one task have a stage each when the batch is committed, and one of them counts."""
    bench.holds.arm("committing")
    query.reached("committing")
    stages = query.stages
    assert len(stages) == len(query.resources) + 1
    bench.holds.release()
    assert query.end() is None, query.errors
    query.judge()
    # The last batch may have a surplus stage as well: on a slow machine Spark runs its tasks speculatively.
    assert not stages & query.stages, "the next commit has not thrown the other stage away"
    return f"{outcome(query)}, the other attempt's stage went with the next commit"


# --- repeated batches ---------------------------------------------------------------------------------------


@scene
def the_last_commit_log_entry_is_deleted(bench: Bench, label: str) -> str:
    query = bench.query(label)
    assert query.run() is None
    forget_commit(query.checkpoint, 2)
    assert query.run() is None
    query.judge()
    assert query.replays == 1
    return outcome(query)


@scene
def foreachBatch_with_two_writes_dies_between_them(bench: Bench, label: str) -> str:  # noqa: N802 Spark's name
    query = bench.query(label, kind="twice")
    for resource in query.resources:
        bench.connection.create_resource(f"{resource}-again")
    query.start_until("committed")
    query.application.kill()
    bench.holds.release()
    query.recover(killed=True)
    query.judge()
    query.judge(suffix="again")
    first, second = (
        bench.connection.stages(f"{query.checkpoint}-{suffix}").applications[0].replays
        for suffix in ("copy", "again")
    )
    assert (first, second) == (1, 0)
    return f"{outcome(query)}, the broker knew the first write and not the second"


@scene
def batch_0_of_a_query_from_latest_fails(bench: Bench, label: str) -> str:
    """Contents that arrive during its downtime belong to it: its start was logged."""
    query = bench.query(label, read={"startingOffsets": "latest"})
    query.start_until("logged")
    query.application.kill()
    bench.holds.release()
    for resource in query.resources:
        query.skip(resource)
        query.publish(resource, LIMIT)
    query.recover(killed=True)
    query.judge()
    return outcome(query)


@scene
def an_aborted_batch_is_committed_later(bench: Bench, label: str) -> str:
    """The broker is down for longer than the sink's deadline: Spark aborts the batch, and repeats it."""
    query = bench.query(label, write=IMPATIENT)
    query.start_until("committing")
    bench.broker.kill()
    bench.holds.release()
    error = query.end()
    assert error is not None
    assert "answered at" in error, error
    assert "Stage.Commit" in error, error
    bench.broker.start()
    query.recover(killed=True)
    query.judge()
    return outcome(query)


@scene
def an_aborted_batch_was_published(bench: Bench, label: str) -> str:
    """The same, when the broker has published the batch and only its answer is lost."""
    query = bench.query(label, write=IMPATIENT)
    query.start_until("committing")
    with bench.wire.stopped(FROM_BROKER):
        bench.holds.release()
        await_(lambda: query.committed == 0, "no batch is published")
        error = query.end()
    assert error is not None
    query.recover(killed=True)
    query.judge()
    assert query.replays == 1
    return outcome(query)


# --- checkpoints that are not what they were ----------------------------------------------------------------


def _forget(query: Query, batch: int) -> None:
    forget_commit(query.checkpoint, batch)
    for path in (query.checkpoint / "offsets").glob(f"*{batch}*"):
        path.unlink()


def _refused(query: Query) -> str:
    """Check the error of the run, and that it published no contents."""
    before = {name: query.contents(f"{name}-copy") for name in query.resources}
    error = query.run()
    assert error is not None, "a checkpoint that is not what it was is taken for what it was"
    assert "rolled back or copied" in error, error
    assert {name: query.contents(f"{name}-copy") for name in query.resources} == before
    return "an error: the checkpoint was rolled back or copied"


@scene
def the_last_two_entries_of_the_checkpoint_are_removed(bench: Bench, label: str) -> str:
    query = bench.query(label)
    assert query.run() is None
    for batch in (1, 2):
        _forget(query, batch)
    return _refused(query)


@scene
def the_last_entry_is_removed_and_its_batch_would_be_larger(bench: Bench, label: str) -> str:
    """Treated as a repetition, its new contents would be lost silently."""
    query = bench.query(label, read={"maxOffsetsPerTrigger": str(2 * LIMIT)})
    assert query.run() is None
    _forget(query, 1)
    for resource in query.resources:
        query.publish(resource, 10)
    return _refused(query)


@scene
def the_last_entry_is_removed_and_its_batch_would_be_smaller(bench: Bench, label: str) -> str:
    """Treated as a repetition, the remaining contents would be published twice."""
    query = bench.query(label)
    assert query.run() is None
    _forget(query, 2)
    query.job["read"]["maxOffsetsPerTrigger"] = str(LIMIT // 2)
    return _refused(query)


@scene
def the_last_entry_is_removed_and_its_batch_would_be_empty(bench: Bench, label: str) -> str:
    query = bench.query(label)
    assert query.run() is None
    _forget(query, 2)
    query.job["where"] = "length(body) < 0"
    return _refused(query)


@scene
def a_checkpoint_is_copied_and_both_run(bench: Bench, label: str) -> str:
    query = bench.query(label)
    assert query.run() is None
    copied = query.checkpoint.with_name(f"{label}-copied")
    shutil.copytree(query.checkpoint, copied)
    for resource in query.resources:
        query.publish(resource, 10)
    assert query.run() is None
    query.judge()
    for resource in query.resources:
        query.publish(resource, 10)
    query.checkpoint, query.job["checkpoint"] = copied, str(copied)
    return _refused(query)


# --- resources that come and go -----------------------------------------------------------------------------


def _by_pattern(query: Query) -> None:
    """The same resources, found by a pattern instead of named."""
    del query.job["read"]["resources"]
    query.job["read"]["resourcePattern"] = f"{query.name}-[ab]"


@scene
def a_query_that_found_no_resource_starts_again(bench: Bench, label: str) -> str:
    """From `latest`: contents written during its downtime are not older than the query."""
    query = bench.query(label, read={"startingOffsets": "latest"})
    _by_pattern(query)
    for resource in query.resources:
        query.skip(resource)
        bench.connection.delete_resource(resource)
    assert query.run() is None
    for resource in query.resources:
        bench.connection.create_resource(resource)
        query.publish(resource, LIMIT)
    assert query.run() is None
    query.judge()
    return outcome(query)


@scene
def a_resource_is_deleted_while_AvailableNow_reads_it(bench: Bench, label: str) -> str:  # noqa: N802 Spark's name
    query = bench.query(label)
    query.start_until("trigger-1")
    bench.connection.delete_resource(query.resources[0])
    bench.holds.release()
    return _error_of_the_deletion(query)


@scene
def a_resource_is_deleted_just_before_an_idle_query_waits(bench: Bench, label: str) -> str:
    query = bench.query(label, kind="idle")
    _by_pattern(query)
    query.start_until("watching")
    bench.connection.delete_resource(query.resources[0])
    bench.holds.release()
    return _error_of_the_deletion(query)


@scene
def a_resource_is_recreated_just_before_an_idle_query_waits(bench: Bench, label: str) -> str:
    """It has fewer contents than the query has read."""
    query = bench.query(label, kind="idle")
    query.start_until("watching")
    bench.connection.delete_resource(query.resources[0])
    bench.connection.create_resource(query.resources[0])
    query.publish(query.resources[0], 1)
    bench.holds.release()
    return _error_of_the_deletion(query)


def _error_of_the_deletion(query: Query) -> str:
    """The run ends with this error soon: no other answer of the broker arrives for a long time."""
    began = time.monotonic()
    error = query.end()
    assert error is not None, "the run ended as if nothing had been lost"
    assert "was deleted" in error, error
    seconds = time.monotonic() - began
    assert seconds < 0.8 * WATCH_WAIT_S, f"error after {seconds:.1f} s"  # Spark ends a query in 15 s at worst
    return "an error: the resource was deleted"


# --- other shapes of a query --------------------------------------------------------------------------------


@scene
def a_self_join_dies_in_the_middle(bench: Bench, label: str) -> str:
    """A join has no order: each content exists once."""
    query = bench.query(label, kind="join")
    query.start_until("trigger-1")
    bench.holds.arm("half-read")
    bench.holds.let_go("trigger-1")
    query.reached("half-read")
    query.application.kill()
    bench.holds.release()
    query.recover(killed=True)
    query.judge(ordered=False)
    return outcome(query)


@scene
def the_sink_with_asyncProgressTracking(bench: Bench, label: str) -> str:  # noqa: N802 Spark's name
    query = bench.query(label, kind="trickle", write={"asyncProgressTrackingEnabled": "true"})
    error = query.run()
    assert error is not None
    assert "does not support async progress tracking" in error, error
    return "an error: Spark allows it for sinks that may repeat, and this one promises more"


@scene
def the_source_with_asyncProgressTracking(bench: Bench, label: str) -> str:  # noqa: N802 Spark's name
    """Into a file with a line per row, at least once: no position is confirmed ahead of the checkpoint."""
    query = bench.query(label, kind="lines", write={"asyncProgressTrackingEnabled": "true"})
    query.start_until("trigger-3")
    query.application.kill()
    bench.holds.release()
    query.recover(killed=True)
    written = (query.checkpoint / "lines").read_text(encoding="utf-8").splitlines()
    for resource, bodies in query.published.items():
        found = [line for line in written if line.startswith(f"{resource} ")]
        assert sorted(set(found)) == sorted(bodies), f"{resource}: {len(set(bodies) - set(found))} lost"
    return f"{outcome(query)}; every content at least once, as such a sink promises"
