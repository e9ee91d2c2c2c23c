"""`./scripts/bench`: the speed with the shipped defaults, compared with the limits of the machine and with Kafka."""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
# Spark's workers and the helper processes import the peers by name.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
# Installed packages have bytecode. Spark starts Python for each query, which would compile our modules each time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# As in scripts/lib/setup.sh, if this file is run without it.
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_CONF_DIR", str(HERE.parents[1] / "conf"))
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")

import pyspark  # noqa: E402
from py4j.protocol import Py4JError  # noqa: E402
from pyspark.errors import PySparkException  # noqa: E402

from benchmarks import guard, plots, profiling, report  # noqa: E402 the path has to be there first
from benchmarks.bench import ROOT, Bench, Plan  # noqa: E402
from benchmarks.machine import machine  # noqa: E402
from benchmarks.measure import Row, pooled  # noqa: E402
from benchmarks.results import Results  # noqa: E402
from benchmarks.workloads import WORKLOADS  # noqa: E402
from mtl.errors import MtlError  # noqa: E402

ROUNDS = {"full": 5, "short": 3}
FAILURES = (MtlError, PySparkException, Py4JError, RuntimeError, AssertionError, OSError)
"""The errors that end a single workload. The others still run, and the command fails at the end."""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument(
        "workloads", nargs="*", metavar="NAME", help=f"all of them unless named: {', '.join(WORKLOADS)}"
    )
    parser.add_argument("--short", action="store_true", help="the short form: minutes instead of an hour")
    parser.add_argument("--rounds", type=int, help="rounds of each comparison (default 5, short 3)")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows to move (default 1)")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "bench", help="where the results go")
    parser.add_argument(
        "--keep",
        action="store_true",
        help="complete the results of an earlier run in --out with the same code, machine and options: its rows stay, "
        "and without NAMEs only the workloads are run that have none; so a run that was cut short goes on, and a "
        "long one can be done in parts",
    )
    parser.add_argument("--no-kafka", action="store_true", help="leave the Kafka peer out")
    parser.add_argument(
        "--kafka-connector",
        metavar="VERSION[,TOKEN-PROVIDER-VERSION]",
        default=pyspark.__version__,
        help="take the Kafka connector of another Spark version; every row that it is in says so "
        f"(default {pyspark.__version__}, the Spark that runs)",
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--compare", action="store_true", help="run the short form and say what got slower than the baseline"
    )
    action.add_argument(
        "--save-baseline", action="store_true", help="run the short form and keep its ratios as the baseline"
    )
    action.add_argument(
        "--profile", action="store_true", help="no rows, but where the time goes, over all processes"
    )
    options = parser.parse_args()
    if options.compare and not guard.BASELINE.exists():
        parser.error("there is no baseline; --save-baseline creates it")
    if options.scale != 1 and (options.compare or options.save_baseline):
        parser.error("the baseline is of the short form, all of its rows: leave --scale out")
    known = list(profiling.PROFILES if options.profile else WORKLOADS)
    unknown = set(options.workloads) - set(known)
    if unknown:
        parser.error(f"unknown workload {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return options


def plan_of(options: argparse.Namespace) -> Plan:
    """How much is measured."""
    short = options.short or options.compare or options.save_baseline
    version, _, token = options.kafka_connector.partition(",")
    rounds = options.rounds or ROUNDS["short" if short else "full"]
    return Plan(short, options.scale, rounds, not options.no_kafka, (version, token))


def measured(bench: Bench, name: str) -> list[Row]:
    """The rows of a workload; none if it fails, and then the reason is printed."""
    print(f"-- {name}", flush=True)
    try:
        rows = WORKLOADS[name](bench)
    except FAILURES as error:
        traceback.print_exception(error)
        print(f"{name} FAILED: {type(error).__name__}", file=sys.stderr, flush=True)
        for log in bench.logs():
            ending = log.read_text(errors="replace")[-2000:]
            print(f"{log.name} ends:\n{ending}", file=sys.stderr, flush=True)
        return []
    print("\n".join(map(report.summary, rows)), flush=True)
    return rows


def run(bench: Bench, options: argparse.Namespace) -> tuple[Results, list[str]]:
    """The results, and the workloads that failed. The rows of each workload are saved at once."""
    results = Results(options.out, machine(bench.place), asdict(bench.plan), WORKLOADS)
    if options.keep and (reasons := results.keep()):
        print(f"the results in {options.out} are dropped: {'; '.join(reasons)}")
    names = options.workloads or [name for name in WORKLOADS if name not in results.done]
    failed = []
    for name in names:
        if rows := measured(bench, name):
            results.add(name, rows, bench.kafka_versions)
        else:
            failed.append(name)
    if options.compare:
        again(bench, results)
    return results, failed


def again(bench: Bench, results: Results) -> None:
    """Measure again each workload that seems slower than the baseline; then the rounds of both runs count."""
    for name in guard.suspects(results.rows):
        print(f"{name} seems slower than the baseline; measured again")
        twice = {row.key: row for row in measured(bench, name)}
        rows = [
            pooled(row, twice[row.key]) if row.key in twice else row
            for row in results.rows
            if row.workload == name
        ]
        results.add(name, rows, bench.kafka_versions)


def allow_many_files() -> None:
    """Raise the limit of file descriptors, here and in the broker, which inherits it: a thousand connections need
    several thousand.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def end_everything() -> None:
    """On SIGTERM exit as on an error: brokers are in process groups of their own and would outlive this process."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def compared(rows: Sequence[Row], where: dict[str, str]) -> int:
    """Print the verdicts; 1 if something has become slower."""
    for difference in guard.other_machine(where):
        print(f"not the machine of the baseline: {difference}")
    verdicts = guard.compare(rows)
    print("\n".join(map(str, verdicts)))
    slower = sum(verdict.what == "slower" for verdict in verdicts)
    print(f"{slower} of {len(verdicts)} rows are slower than the baseline beyond the noise")
    return 1 if slower else 0


def main() -> int:
    """Run, print, save."""
    options = arguments()
    allow_many_files()
    end_everything()
    with Bench(plan_of(options), touch=not options.profile) as bench:
        if options.profile:
            return profiling.main(bench, options.workloads, options.out)
        results, failed = run(bench, options)
    table = report.markdown(results.rows, results.where)
    print(f"\n{table}")
    for picture in plots.save(results.rows, options.out):
        print(picture)
    code = 0
    if options.save_baseline:
        guard.save(results.rows, results.where)
    if options.compare:
        code = compared(results.rows, results.where)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 2 if failed else code


if __name__ == "__main__":
    sys.exit(main())
