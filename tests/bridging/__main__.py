"""python -m tests.bridging [--no-spark]: all protocols into all, into and out of Spark, and the faults, as tables."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.bridging import faults, matrix, sparks
from tests.bridging.ends import DOORS, ENDS
from tests.bridging.places import Site, everything
from tests.support.aio import in_loop


def crossings(site: Site) -> None:
    """The results of the matrix."""
    results = {
        (producer, consumer): in_loop(matrix.cross)(site.places, ENDS[producer], ENDS[consumer])
        for producer in ENDS
        for consumer in ENDS
    }
    print(matrix.table(results), end="\n\n", flush=True)


def passages(site: Site, place: Path) -> None:
    """The results with Spark."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 the rest needs no Spark

    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    print(sparks.table(in_loop(sparks.pass_through)(site.places, spark, place)), end="\n\n", flush=True)
    spark.stop()


def outcomes(site: Site) -> bool:
    """Run the faults; returns whether every result is as required."""
    print(faults.HEAD)
    fine = True
    for protocol in DOORS:
        for victim in faults.VICTIMS:
            try:
                print(in_loop(faults.play)(site, protocol, victim), flush=True)
            except AssertionError as error:
                fine = False
                print(f"| {protocol} | {victim} | FAILED: {error} | | | |", flush=True)
    return fine


def main() -> int:
    """Exit code 1 if a result is not as required."""
    parser = argparse.ArgumentParser(prog="scripts/bridge", description=__doc__)
    parser.add_argument("--no-spark", action="store_true", help="leave the rows of Spark out")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place, everything(Path(place)) as site:
        crossings(site)
        if not asked.no_spark:
            passages(site, Path(place) / "checkpoint")
        return 0 if outcomes(site) else 1


if __name__ == "__main__":
    sys.exit(main())
