"""What `scripts/conformance --mutate` and `--sample` run: the tests of a copy of the project, with mutants in it."""

from __future__ import annotations

import argparse
import hashlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path

import conformance

from mutation.choosing import Code, of_test
from mutation.mutants import Mutant
from mutation.project import Coverage, Failing, Project
from mutation.verdicts import ELSEWHERE, KILLED, SURVIVED, Kept, Verdict, reasons, table

ROOT = Path(__file__).parents[2]
UNIT = "tests/unit"
"""The tests of single modules. What they execute is seen for a sample."""


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/conformance", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--mutate", action="store_true", help="the code behind every MUST and SHOULD")
    what.add_argument("--sample", type=int, metavar="N", help="so many mutants of all code")
    parser.add_argument(
        "--requirement", action="append", metavar="ID", help="with --mutate: only this one; repeatable"
    )
    parser.add_argument("--seed", type=int, default=1, help="decides which mutants (default: 1)")
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="stop after so many; the same command goes on"
    )
    return parser.parse_args(words)


class Trial:
    """One run of the tool."""

    def __init__(self, root: Path, copy: Project, asked: argparse.Namespace) -> None:
        self._root = root
        self._copy = copy
        self._asked = asked
        self._end = time.monotonic() + asked.minutes * 60 if asked.minutes else float("inf")
        self._build = root / "build" / "mutation"
        self._digest = copy.digest()
        mode = "mutate" if asked.mutate else f"sample-{asked.sample}"
        self._kept = Kept(self._build / f"{mode}-{asked.seed}-{self._digest}.jsonl")
        self._shown = {
            requirement: [f"{one.path}::{one.name.replace('.', '::')}" for one in shown]
            for requirement, shown in conformance.evidence(root / "tests", root).items()
        }

    def requirements(self) -> list[str]:
        """The ids that are tried: those that were asked for, else all that bind."""
        known = {r.id: r for one in conformance.documents(self._root / "tests" / "requirements") for r in one}
        asked: list[str] = self._asked.requirement or [
            one for one, r in known.items() if r.level in conformance.BINDING
        ]
        unknown = [one for one in asked if one not in known or one not in self._shown]
        if unknown:
            raise Failing(f"no requirement with a test: {', '.join(unknown)}; CONFORMANCE.md lists them")
        return asked

    def run(self) -> int:
        """Every mutant that was asked for, or as many as there is time for; 1 when one survived without a reason."""
        explained = reasons(self._root / "tests" / "requirements" / "survivors.toml")
        if self._asked.mutate:
            requirements = self.requirements()
            code, traced = self._code(
                {_traced_with(test) for one in requirements for test in self._shown[one]}
            )
            plan = []
            for one in requirements:
                tests = of_test(self._shown[one], traced)
                plan += [(one, mutant, tests) for mutant in code.behind(one, tests, self._asked.seed)]
        else:
            code, _ = self._code({UNIT})
            plan = [
                ("sample", one, code.noticing(one))
                for one in code.sample(self._asked.sample, self._asked.seed)
            ]
        done = []
        for about, mutant, tests in plan:
            verdict = self._kept.all.get((about, mutant.key))
            if verdict is None and time.monotonic() < self._end:
                verdict = self._tried(about, mutant, tests, code)
                self._kept.add(verdict)
                print(verdict.row(explained), flush=True)
            if verdict is not None:
                done.append(verdict)
        print(f"\n{table(done, explained)}")
        if len(done) < len(plan):
            print(f"{len(plan) - len(done)} more are left: the same command goes on")
        return int(any(one.verdict == SURVIVED and one.key not in explained for one in done))

    def _tried(self, about: str, mutant: Mutant, tests: Sequence[str], code: Code) -> Verdict:
        """Run the named tests, then the others that execute the mutant."""
        ran = self._copy.with_mutant(mutant, tests) if tests else None
        if ran is not None and not ran.passed:
            return Verdict(about, mutant.key, mutant.line, KILLED, ran.failed)
        others = [one for one in code.noticing(mutant) if one not in set(tests)]
        ran = self._copy.with_mutant(mutant, others) if others else None
        if ran is not None and not ran.passed:
            return Verdict(about, mutant.key, mutant.line, ELSEWHERE, ran.failed)
        return Verdict(
            about, mutant.key, mutant.line, SURVIVED, "" if tests or others else "no test executes it"
        )

    def _code(self, tests: Collection[str]) -> tuple[Code, list[str]]:
        """The code with what these tests execute, and their names; kept for this state of the project."""
        name = hashlib.sha256("\n".join(sorted(tests)).encode()).hexdigest()[:16]
        kept = self._build / f"traced-{self._digest}-{name}.json"
        if not kept.exists():
            print(f"seeing what the tests execute, of {len(tests)} files", file=sys.stderr, flush=True)
            kept.write_text(json.dumps(self._copy.coverage(sorted(tests))), encoding="utf-8")
        traced: Coverage = json.loads(kept.read_text(encoding="utf-8"))
        return Code(self._copy.sources(), traced), list(traced)


def _traced_with(test: str) -> str:
    """The whole file of a unit test, so that it is seen which code only few tests execute; of others the test alone."""
    return test.split("::")[0] if test.startswith(f"{UNIT}/") else test


def main(words: Sequence[str], root: Path = ROOT) -> int:
    """Print the table; 1 for a survivor without a reason, 2 when it could not be run."""
    asked = arguments(words)
    with tempfile.TemporaryDirectory(prefix="mtl-mutation-") as place:
        try:
            return Trial(root, Project(root, Path(place).resolve() / "project").copied(), asked).run()
        except (Failing, ValueError, conformance.Unusable) as e:
            print(f"error: {e}", file=sys.stderr)
            return 2


if __name__ == "__main__":
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # so that the tests that it runs end, too
    sys.exit(main(sys.argv[1:]))
