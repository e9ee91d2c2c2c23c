"""The demo: flights are published, Spark computes daily figures from them, exactly once, and all are checked."""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import pyarrow.parquet
from demo_job import chaos, flights
from demo_job.processes import ROOT, Failed, Spark
from demo_job.progress import Checkpoint, Standstill
from demo_job.publish import publish
from demo_job.report import compare, plot, table
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

import mtl
from mtl.client.connection import Connection
from mtl.errors import MtlError
from mtl.testing import RunningBroker

FLIGHTS, DAILY = "flights", "daily"
"""The resources, as query.py names them."""

BATCHES = 12
"""The default number of micro-batches with contents; Spark adds one that closes the last windows."""

LEAST_SAMPLE = 1_000
"""With fewer flights some batches would close no window."""

LOOK_S = 0.02
"""Seconds between two looks at the query."""

STALL_S = 300.0
"""The time without progress after which a query counts as hung; it starts in ten seconds and needs about one per
batch.
"""


class Demo:
    """One run, step by step; `place` is the directory of all its files, except the picture."""

    def __init__(self, place: Path, sample: int | None, batches: int, seed: int, *, kill: bool) -> None:
        self._console = Console()
        self._place = place
        self._batches = batches
        self._seed = seed
        self._kill = kill
        self._events: list[chaos.Event] = []
        self._flights = flights.load(sample, seed)
        self._expected = flights.expected(self._flights)
        self._contents = len(self._flights) + 1  # with the one that ends the feed
        self._checkpoint = Checkpoint(place / "checkpoint")

    def run(self, picture: Path) -> None:
        """Run all steps. Failed if anything differs from the expected result."""
        self._print(f"{len(self._flights):,} flights, {len(self._expected):,} windows to come out of them")
        with mtl.testing.broker(self._place / "data") as broker, mtl.connect(broker.endpoint) as connection:
            self._print(f"broker at {broker.endpoint}")
            for resource in (FLIGHTS, DAILY):
                connection.create_resource(resource)
            self._publish(broker, connection)
            self._stream(broker, connection)
            rows = self._read(broker.endpoint)
            self._check(connection, rows, picture)

    # --- the steps ------------------------------------------------------------------------------------------

    def _publish(self, broker: RunningBroker, connection: Connection) -> None:
        interruption = None
        if self._kill:
            at = int(self._contents * random.Random(self._seed).uniform(0.2, 0.7))
            interruption = chaos.Interruption(broker, at, self._contents, self._print)
        with self._bar("publishing", self._contents) as (bar, task):

            def moved(sent: int, confirmed: int) -> None:
                bar.update(task, completed=confirmed)
                if interruption is not None:
                    interruption.moved(sent, confirmed)

            publish(connection, FLIGHTS, flights.contents(self._flights), moved)
        if interruption is not None:
            self._events.append(interruption.survived())
        self._demand_contents(connection, FLIGHTS, self._contents)

    def _stream(self, broker: RunningBroker, connection: Connection) -> None:
        limit = -(-self._contents // self._batches)
        hook = chaos.Hook(self._place / "answered")
        checkpoint = str(self._checkpoint.directory)
        arguments = ("stream", broker.endpoint, "--checkpoint", checkpoint, "--limit", str(limit))
        query = Spark(self._place, *arguments, hook=hook.path if self._kill else None)
        blows = chaos.plan(self._batches, self._seed) if self._kill else []
        scene = chaos.Scene(query, broker, connection, self._checkpoint, hook, self._contents, limit)
        trouble = chaos.Chaos(scene, blows, self._print)
        query.start()
        try:
            with self._bar("micro-batches", self._batches + 1) as (bar, task):
                standstill = Standstill(self._checkpoint)
                while (code := query.wait(LOOK_S)) != 0:
                    bar.update(task, completed=self._checkpoint.committed + 1)
                    if code is None:
                        trouble.step()
                    else:
                        trouble.ended(code)
                    if standstill.seconds > STALL_S:
                        raise Failed(
                            f"the query has not moved for {STALL_S:.0f} s; its log ends:\n{query.tail()}"
                        )
                bar.update(task, completed=self._checkpoint.committed + 1)
        finally:
            query.end()
        self._events += trouble.events
        if self._kill:
            trouble.finish()

    def _read(self, endpoint: str) -> list[tuple[flights.Key, flights.Figures]]:
        self._print("reading the windows back as a batch DataFrame")
        file = self._place / "daily.parquet"
        reader = Spark(self._place, "read", endpoint, str(file))
        reader.start()
        try:
            code = reader.wait(STALL_S)
        finally:
            reader.end()
        if code != 0:
            how = f"failed with exit code {code}" if code is not None else f"took more than {STALL_S:.0f} s"
            raise Failed(f"reading {how}; its log ends:\n{reader.tail()}")
        rows = pyarrow.parquet.read_table(file).to_pylist()
        return [
            (
                (row["day"], row["carrier"], row["origin"]),
                tuple(row[name] for name in flights.FIGURES),
            )
            for row in rows
        ]

    def _check(
        self, connection: Connection, rows: list[tuple[flights.Key, flights.Figures]], picture: Path
    ) -> None:
        found = compare(self._expected, rows)
        self._console.print(table(self._expected, dict(rows)))
        if self._kill:
            self._print_kills(connection)
        batches = self._checkpoint.committed + 1
        self._print(f"{batches} micro-batches; {found.summary}")
        if not found.is_exact:
            raise Failed("\n".join(found.trouble()))
        self._demand_contents(connection, DAILY, len(self._expected))
        counted = sum(figures[0] or 0 for _, figures in rows)
        if counted != len(self._flights):
            raise Failed(f"{counted:,} flights are in the windows, {len(self._flights):,} were published")
        how = f"after {len(self._events)} kills" if self._kill else "exactly once"
        subtitle = f"{found.equal:,} windows through MTL and Spark, all of them exact, {how}"
        plot(
            dict(rows), picture, subtitle, [(self._day(event.done), event.victims) for event in self._events]
        )
        self._print(f"picture: {picture}")

    def _day(self, contents: int) -> date:
        """The day of the flight after so many contents."""
        return date.fromisoformat(self._flights["time_hour"].iloc[min(contents, len(self._flights) - 1)][:10])

    def _print_kills(self, connection: Connection) -> None:
        kills = [event.victims for event in self._events]
        query, broker = (sum(name in victims for victims in kills) for name in (chaos.QUERY, chaos.BROKER))
        left = connection.stages(application=self._checkpoint.query)
        replays = sum(application.replays for application in left.applications)
        self._print(
            f"killed: the broker {broker} times, the query {query} times; {replays} repeated commits recognised"
        )
        if left.stages:
            self._print(f"{len(left.stages)} stages of killed tasks are left, which no reader will see")

    def _demand_contents(self, connection: Connection, resource: str, contents: int) -> None:
        found = connection.describe([resource])[resource].contents
        if found != contents:
            raise Failed(f"the resource {resource!r} has {found:,} contents, and should have {contents:,}")

    # --- the console ----------------------------------------------------------------------------------------

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    @contextmanager
    def _bar(self, what: str, total: int) -> Iterator[tuple[Progress, TaskID]]:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console) as bar:
            yield bar, bar.add_task(what, total=total)


# --- the command line ---------------------------------------------------------------------------------------


def main() -> int:
    """The demo's exit code: 0 only if every window exists once, with exactly the expected figures."""
    options = _options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # to end as by Ctrl-C: leaving nothing behind
    place = Path(options.keep or tempfile.mkdtemp(prefix="mtl-demo-")).resolve()
    if place.exists() and any(place.iterdir()):
        sys.exit(f"{place} is not empty; the demo begins with nothing")
    place.mkdir(parents=True, exist_ok=True)
    seed = options.seed if options.seed is not None else random.randrange(1_000_000)
    demo = Demo(place, options.sample, options.batches, seed, kill=options.kill)
    began = time.monotonic()
    try:
        demo.run(place / "demo.png" if options.keep else ROOT / "build" / "demo.png")
    except (Failed, MtlError) as error:
        print(f"\nFAILED: {error}", f"seed {seed}; everything is kept in {place}", sep="\n", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        code = 130
    else:
        print(
            f"All exact, in {time.monotonic() - began:.0f} s" + (f" (seed {seed})." if options.kill else ".")
        )
        code = 0
    if not options.keep:
        shutil.rmtree(place)
    return code


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/demo", description=__doc__)
    parser.add_argument(
        "--kill", action="store_true", help="kill broker and query again and again, with SIGKILL"
    )
    parser.add_argument(
        "--keep", metavar="DIR", help="keep data, checkpoint, logs and picture in this new directory"
    )
    parser.add_argument(
        "--sample", metavar="N", type=int, help="the number of flights, chosen by the seed (default: all)"
    )
    parser.add_argument(
        "--seed", metavar="S", type=int, help="chooses sample and moments (default: by chance)"
    )
    parser.add_argument(
        "--batches", metavar="N", type=int, default=BATCHES, help="micro-batches (default: %(default)s)"
    )
    options = parser.parse_args()
    least = chaos.LEAST_BATCHES if options.kill else 1
    if options.batches < least:
        parser.error(f"--batches is at least {least}{' with --kill' * options.kill}")
    if options.sample is not None and not LEAST_SAMPLE <= options.sample <= flights.ALL:
        parser.error(f"--sample is between {LEAST_SAMPLE:,} and {flights.ALL:,}")
    return options


if __name__ == "__main__":
    sys.exit(main())
