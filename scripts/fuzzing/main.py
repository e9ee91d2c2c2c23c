"""The implementation of scripts/fuzz: a process per target (worker.py), and the table of their results."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fuzzing.target import FINDINGS, Target
from tests.fuzzing.targets import BY_NAME

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "fuzz"

TIMEOUT_S = 5
"""The timeout of one input in seconds, on a busy machine."""

MEMORY_MIB = 512
"""The memory limit of the process in MiB, which needs about 200 with everything loaded."""

_STAT = re.compile(r"^stat::(\w+):\s+(\d+)", re.MULTILINE)
_COVERED = re.compile(r"cov: (\d+) ft: (\d+) corp: (\d+)")
_SAVED = re.compile(r"Test unit written to (\S+)")


@dataclass(frozen=True)
class Run:
    """The result of one target: inputs, the edges they covered, inputs worth keeping, the peak of memory (MiB)."""

    target: str
    inputs: int
    per_s: int
    edges: int
    kept: int
    memory: int
    found: str | None


def fuzz(target: Target, limit: list[str], seed: int) -> Run:
    """Run one target until the limit or its first failure."""
    corpus, crashes = BUILD / "corpus" / target.name, BUILD / "found"
    corpus.mkdir(parents=True, exist_ok=True)
    crashes.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as seeds:
        for number, data in enumerate(target.known()):
            Path(seeds, f"seed-{number:03}").write_bytes(data)
        options = [
            *limit,
            f"-seed={seed}",
            f"-max_len={max(target.max_len, *map(len, target.known()))}",
            f"-timeout={TIMEOUT_S}",
            f"-rss_limit_mb={MEMORY_MIB}",
            f"-artifact_prefix={crashes}/{target.name}-",
            "-print_final_stats=1",
        ]
        if target.tokens:
            words = Path(seeds, "tokens.dict")
            words.write_text("".join(f'"{_escaped(token)}"\n' for token in target.tokens))
            options.append(f"-dict={words}")
        command = [sys.executable, str(Path(__file__).with_name("worker.py")), target.name, *options]
        ended = subprocess.run(
            [*command, str(corpus), seeds], capture_output=True, text=True, errors="replace", check=False
        )
    return _run(target, ended)


def _escaped(token: bytes) -> str:
    return "".join(f"\\x{octet:02x}" for octet in token)


def _run(target: Target, ended: subprocess.CompletedProcess[str]) -> Run:
    stats = {name: int(value) for name, value in _STAT.findall(ended.stderr)}
    if "number_of_executed_units" not in stats:
        sys.exit(f"fuzz: {target.name} did not run:\n{ended.stderr[-3000:]}")
    covered = _COVERED.findall(ended.stderr)
    edges, _, kept = map(int, covered[-1]) if covered else (0, 0, 0)
    found = None
    if ended.returncode:
        saved = _SAVED.search(ended.stderr)
        found = saved[1] if saved else "nothing was saved"
        print(ended.stdout[-2000:], ended.stderr[-3000:], sep="\n", file=sys.stderr)
    inputs, per_s = stats["number_of_executed_units"], stats["average_exec_per_sec"]
    return Run(target.name, inputs, per_s, edges, kept, stats["peak_rss_mb"], found)


def show(runs: list[Run]) -> None:
    """The table."""
    print(f"{'target':<12}{'inputs':>14}{'inputs/s':>12}{'edges':>8}{'kept':>8}{'MiB':>6}")
    for run in runs:
        print(f"{run.target:<12}{run.inputs:>14,}{run.per_s:>12,}{run.edges:>8}{run.kept:>8}{run.memory:>6}")
    print(f"{'all':<12}{sum(run.inputs for run in runs):>14,}")


def replay(target: Target, path: Path) -> None:
    """Print the result of one input."""
    target.run(path.read_bytes())
    print(f"fuzz: {target.name} takes {path} without a failure")


def main() -> int:
    """Exit code 1 when a target failed."""
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("--target", action="append", choices=sorted(BY_NAME), metavar="NAME")
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--inputs", type=int)
    parser.add_argument("--seed", type=int, default=0, help="0: another one each time")
    parser.add_argument("--replay", type=Path)
    parser.add_argument("--list", action="store_true")
    asked = parser.parse_args()
    targets = [BY_NAME[name] for name in asked.target or BY_NAME]
    if asked.list:
        print(*(target.name for target in targets), sep="\n")
        return 0
    if asked.replay:
        replay(targets[0], asked.replay)
        return 0
    limit = [f"-runs={asked.inputs}"] if asked.inputs else [f"-max_total_time={asked.seconds}"]
    runs = []
    for target in targets:
        run = fuzz(target, limit, asked.seed)
        runs.append(run)
        if run.found:
            print(
                f"{run.target} failed for an input. See it again, and keep it as a test once it is repaired:"
            )
            print(f"  scripts/fuzz --target {run.target} --replay {run.found}")
            print(f"  cp {run.found} {(FINDINGS / run.target).relative_to(ROOT)}/")
    show(runs)
    return 1 if any(run.found for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
