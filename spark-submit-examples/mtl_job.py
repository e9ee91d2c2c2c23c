"""The common part of the jobs here: the arguments for the broker and the credentials, and the run of a query.

The jobs import it, so it travels with them: `--py-files mtl_job.py`, unless the driver runs where this directory is.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.readwriter import DataStreamWriter

CREDENTIALS = {
    "user": ("NAME", "log in as this user"),
    "password_file": ("FILE", "its password: the first line of this file, on driver and executors"),
    "password_env": ("NAME", "its password: this environment variable, of driver and executors"),
    "curve_server_key": ("KEY", "the broker's public key, or its file: encrypts everything"),
    "curve_key_file": ("FILE", "a private key that the broker knows the user by"),
}
"""Arguments that are options of format("mtl") with the same names in another spelling (password_file, passwordFile).
There is no argument for a password itself: `ps`, Spark's UI and its event log show the arguments of a job.
"""


def parser(description: str | None) -> argparse.ArgumentParser:
    """The arguments of every job."""
    found = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    found.add_argument(
        "--endpoint", default="tcp://127.0.0.1:5975", help="the broker's (default: %(default)s)"
    )
    for name, (value, meaning) in CREDENTIALS.items():
        found.add_argument("--" + name.replace("_", "-"), metavar=value, help=meaning)
    return found


def add_query(found: argparse.ArgumentParser) -> None:
    """The arguments of a streaming job."""
    found.add_argument(
        "--checkpoint", required=True, help="where the query keeps its place; storage that all machines share"
    )
    found.add_argument(
        "--every",
        metavar="INTERVAL",
        help="run without end, a batch every '10 seconds' (default: process the present contents and end)",
    )
    found.add_argument(
        "--limit",
        type=int,
        default=100_000,
        help="contents in a batch, at most (default: %(default)s; 0: all there are, as Spark 4.0 and 4.1 need it)",
    )


def broker(arguments: argparse.Namespace) -> dict[str, str]:
    """The options of format("mtl") that reading and writing have in common."""
    options = {"endpoint": arguments.endpoint}
    for name in CREDENTIALS:
        if value := getattr(arguments, name):
            first, *others = name.split("_")
            options[first + "".join(other.title() for other in others)] = value
    return options


def limit(arguments: argparse.Namespace) -> dict[str, int]:
    """The options of format("mtl") that bound a batch of a streaming job that reads from it."""
    return {"maxOffsetsPerTrigger": arguments.limit} if arguments.limit else {}


def run(writer: DataStreamWriter, arguments: argparse.Namespace) -> None:
    """Run the query to its end, and print its figures."""
    if arguments.every:
        writer = writer.trigger(processingTime=arguments.every)
    else:
        # Process all contents that exist at the start, in batches of the limit, and end: for schedulers, and for
        # platforms that charge by the hour. The next run continues where this one ended.
        writer = writer.trigger(availableNow=True)
    query = writer.option("checkpointLocation", arguments.checkpoint).start()
    query.awaitTermination()
    # Of the last 100 batches: Spark remembers no more.
    rows = [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]
    print(f"rows: {sum(rows):,}, batches: {len(rows)}")
