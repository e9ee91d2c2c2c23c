"""The implementation of `scripts/conformance --mutate` and `--sample`: runs the tests in a copy of the project with
mutants.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import conformance

from mutation.choosing import Code, first_files, of_test
from mutation.executed import Executed
from mutation.forks import Forks
from mutation.integration import integration_tests
from mutation.mutants import Mutant
from mutation.project import UNIT, Failing, Project
from mutation.verdicts import ELSEWHERE, KILLED, SURVIVED, Kept, Verdict, reasons, table, without_killed

ROOT = Path(__file__).parents[2]

MOST_FILES = 12
"""The number of test files, the nearest ones, for a process that imports a mutant: each file takes time there."""


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/conformance", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--mutate", action="store_true", help="the code behind every MUST and SHOULD")
    what.add_argument("--sample", type=int, metavar="N", help="the number of random mutants of all code")
    parser.add_argument(
        "--requirement",
        action="append",
        metavar="ID",
        help="with --mutate: only this one, and only the tests of its files; repeatable",
    )
    parser.add_argument("--seed", type=int, default=1, help="decides which mutants (default: 1)")
    parser.add_argument(
        "--minutes", type=float, default=0.0, help="stop after this many minutes; the same command continues"
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
        self._executed = Executed(copy, self._build / "executed")
        mode = "mutate" if asked.mutate else f"sample-{asked.sample}"
        self._kept = Kept(self._build / f"{mode}-{asked.seed}-{copy.digest('src', 'tests')}.jsonl")
        self._evidence = {
            requirement: [f"{test.path}::{test.name.replace('.', '::')}" for test in tests]
            for requirement, tests in conformance.evidence(root / "tests", root).items()
        }

    def requirements(self) -> list[str]:
        """The ids of the requested requirements, by default of all binding ones."""
        known = {
            r.id: r
            for document in conformance.documents(self._root / "tests" / "requirements")
            for r in document
        }
        asked: list[str] = self._asked.requirement or [
            id_ for id_, r in known.items() if r.level in conformance.BINDING
        ]
        unknown = [id_ for id_ in asked if id_ not in known or id_ not in self._evidence]
        if unknown:
            raise Failing(f"no requirement with a test: {', '.join(unknown)}; CONFORMANCE.md lists them")
        return asked

    def run(self) -> int:
        """Try every requested mutant, or as many as the time allows; returns 1 if one survived without a reason."""
        explained = reasons(self._root / "tests" / "requirements" / "survivors.toml")
        if self._asked.mutate:
            requirements = self.requirements()
            code, traced = self._code(
                {_with_its_file(test) for requirement in requirements for test in self._evidence[requirement]}
            )
            plan = []
            for requirement in requirements:
                tests = of_test(self._evidence[requirement], traced)
                if not tests:
                    print(f"{requirement}: no test of it runs the code in its own process", file=sys.stderr)
                plan += [
                    (requirement, mutant, tests)
                    for mutant in code.behind(requirement, tests, self._asked.seed)
                ]
        else:
            code, traced = self._code([])
            plan = [
                ("sample", mutant, code.noticing(mutant))
                for mutant in code.sample(self._asked.sample, self._asked.seed)
            ]
        done = []
        with Forks(self._copy, [test.split("::")[0] for test in traced]) as forks:
            for about, mutant, tests in plan:
                verdict = self._kept.all.get((about, mutant.key))
                if verdict is None and time.monotonic() < self._end:
                    verdict = self._tried(about, mutant, tests, code, forks)
                    self._kept.add(verdict)
                    print(verdict.row(explained), flush=True)
                if verdict is not None:
                    done.append(verdict)
        print(f"\n{table(done, explained)}")
        if self._asked.mutate:
            weak = without_killed(done)
            print(f"{len(weak)} requirements whose own tests noticed no change: {', '.join(weak) or 'none'}")
        if len(done) < len(plan):
            print(f"{len(plan) - len(done)} more are left: the same command goes on")
        return int(any(verdict.verdict == SURVIVED and verdict.key not in explained for verdict in done))

    def _tried(self, about: str, mutant: Mutant, named: Sequence[str], code: Code, forks: Forks) -> Verdict:
        """Run the named tests, then the others that execute the mutant; of both the one first that failed in an earlier
        run. What survives in a fork is tried again in a process that imports the mutant. Integration tests, which take
        minutes, are for code that no unit test executes.
        """
        last = self._kept.earlier.get(mutant.key)
        others = [test for test in code.noticing(mutant) if test not in set(named)]
        tried = [
            (word, sorted(tests, key=lambda test: test != last))
            for word, tests in ((KILLED, named), (ELSEWHERE, others))
            if tests
        ]
        for in_fork in (True, False):
            for word, tests in tried:
                failed = forks.failing(mutant, tests) if in_fork else None
                if failed is None:
                    failed = self._copy.with_mutant(mutant, first_files(tests, MOST_FILES)).failed
                if failed:
                    return Verdict(about, mutant.key, mutant.line, word, failed)
        files = [] if tried else integration_tests(mutant.path, self._copy.place)
        failed = self._copy.with_mutant(mutant, files).failed if files else ""
        # Twice: on a busy machine a test with several processes may fail by itself.
        if failed and self._copy.with_mutant(mutant, [failed] if "::" in failed else files).failed:
            return Verdict(about, mutant.key, mutant.line, ELSEWHERE, failed)
        return Verdict(about, mutant.key, mutant.line, SURVIVED, "" if tried else "in no unit test")

    def _code(self, others: Iterable[str]) -> tuple[Code, list[str]]:
        """The code with what these tests execute and, unless single requirements were asked for, all tests of single
        modules; and the names of all of them.
        """
        every = [] if self._asked.requirement else self._copy.unit_tests()
        traced = self._executed.by([*every, *others])
        return Code(self._copy.sources(), traced), list(traced)


def _with_its_file(test: str) -> str:
    """The whole file of a test of single modules, whose other tests may notice a mutant, too; of others the test."""
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
    # So that the tests that it runs end, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    sys.exit(main(sys.argv[1:]))
