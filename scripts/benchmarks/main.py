"""`./scripts/bench`: how fast the connector is beside what Spark's Python Data Source API costs by itself."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
# Spark's workers import the peers by name.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))

from pyspark.sql import SparkSession  # noqa: E402

import mtl.testing  # noqa: E402
from benchmarks import report  # noqa: E402 the path has to be there first
from benchmarks.peers import DiscardSink, GeneratorSource  # noqa: E402
from benchmarks.workloads import TASKS, WORKLOADS, Bench, Size  # noqa: E402

SIZES = (Size(100, 10_000_000, 10_000), Size(1024, 2_000_000, 4_000))
"""1 GB and 2 GB a run: enough that a job's own start does not hide what moving the rows costs."""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("workloads", nargs="*", choices=[*WORKLOADS, []], help="all of them unless named")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each side (default 5)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows to move (default 1)")
    parser.add_argument(
        "--out", type=Path, default=Path("build/bench"), help="where bench.md and bench.json go"
    )
    return parser.parse_args()


def session(place: Path) -> SparkSession:
    """Spark with one task slot per core."""
    spark = (
        SparkSession.builder.master(f"local[{TASKS}]")
        .appName("bench")
        .config("spark.driver.memory", "2g")
        .config("spark.local.dir", str(place))
        .config("spark.sql.shuffle.partitions", str(TASKS))
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.dataSource.register(GeneratorSource)
    spark.dataSource.register(DiscardSink)
    return spark


def main() -> int:
    """Run, print, save."""
    options = arguments()
    sizes = [
        Size(
            s.octets,
            max(s.batch_rows * TASKS, int(s.rows * options.scale) // s.batch_rows * s.batch_rows),
            s.batch_rows,
        )
        for s in SIZES
    ]
    rows = []
    with tempfile.TemporaryDirectory(prefix="mtl-bench-") as directory:
        place = Path(directory)
        spark = session(place / "spark")
        with mtl.testing.broker(data=place / "data") as broker:
            bench = Bench(spark, broker.endpoint, options.rounds)
            for name in options.workloads or WORKLOADS:
                for size in sizes:
                    row = WORKLOADS[name](bench, size)
                    print(f"{row.workload}: {row.ratio:.2f} of {row.peer}", flush=True)
                    rows.append(row)
        spark.stop()
    print()
    print(report.markdown(rows))
    report.save(rows, options.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
