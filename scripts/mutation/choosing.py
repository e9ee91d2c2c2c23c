"""The choice of mutants for a requirement and for a sample, and of the tests that should notice a mutant."""

from __future__ import annotations

import ast
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import PurePosixPath

from mutation.mutants import Mutant, mutants
from mutation.project import Coverage

FUNCTIONS = 4
"""The number of functions that represent the code of a requirement: in its tests' own modules, those executed by the
fewest tests.
"""

MUTANTS = 6
"""The number of mutants of these functions for a requirement, chosen by the seed."""

MOST_TESTS = 300
"""The number of tests for one mutant, those of its module first: some lines of the broker are executed by thousands.
"""


@dataclass(frozen=True, slots=True)
class Function:
    """A function of the code; `first` to `last` are the lines of its body."""

    path: str
    where: str
    first: int
    last: int


class Code:
    """The sources, their mutants and functions, and the tests that execute them."""

    def __init__(self, sources: Mapping[str, bytes], coverage: Coverage) -> None:
        self._sources = sources
        self._mutants: dict[str, list[Mutant]] = {}
        self._tests: defaultdict[str, defaultdict[int, set[str]]] = defaultdict(lambda: defaultdict(set))
        self._own: defaultdict[str, set[str]] = defaultdict(set)
        for test, files in coverage.items():
            self._own[module_of(test)].add(test)
            for path, lines in files.items():
                for line in lines:
                    self._tests[path][line].add(test)

    def mutants(self, path: str) -> list[Mutant]:
        """All mutants of one file."""
        if path not in self._mutants:
            self._mutants[path] = mutants(self._sources[path], path)
        return self._mutants[path]

    @cached_property
    def functions(self) -> list[Function]:
        """The functions of all files."""
        return [
            function
            for path, source in self._sources.items()
            for function in _functions(ast.parse(source), path, "")
        ]

    def executing(self, path: str, first: int, last: int) -> set[str]:
        """The tests that execute some of these lines."""
        return set().union(*(self._tests[path].get(line, ()) for line in range(first, last + 1)))

    # --- which mutants ------------------------------------------------------------------------------------------

    def behind(self, requirement: str, tests: Iterable[str], seed: int) -> list[Mutant]:
        """The mutants for a requirement: in lines that its tests execute, of their own modules first, and of functions
        that few other tests execute.
        """
        named = set(tests)
        own = {module_of(test) for test in named}
        candidates = []
        for function in self.functions:
            executing = self.executing(function.path, function.first, function.last)
            if executing & named:
                candidates.append(
                    (function.path not in own, len(executing), function.path, function.first, function)
                )
        chosen: list[Mutant] = []
        for *_, function in sorted(candidates)[:FUNCTIONS]:
            chosen += [
                mutant
                for mutant in self.mutants(function.path)
                if function.first <= mutant.line <= function.last and self._of(mutant) & named
            ]
        chosen = sorted(set(chosen), key=lambda mutant: mutant.key)
        return self._sound(random.Random(f"{seed} {requirement}").sample(chosen, len(chosen)), MUTANTS)

    def sample(self, count: int, seed: int) -> list[Mutant]:
        """Mutants of all code, at random."""
        everything = [mutant for path in sorted(self._sources) for mutant in self.mutants(path)]
        return self._sound(random.Random(seed).sample(everything, min(2 * count, len(everything))), count)

    def _sound(self, candidates: Iterable[Mutant], count: int) -> list[Mutant]:
        """The first ones that are valid Python."""
        sound: list[Mutant] = []
        for candidate in candidates:
            if len(sound) == count:
                break
            try:
                compile(
                    candidate.applied(self._sources[candidate.path]),
                    candidate.path,
                    "exec",
                    dont_inherit=True,
                )
            except SyntaxError:
                continue
            sound.append(candidate)
        return sound

    # --- which tests --------------------------------------------------------------------------------------------

    def _of(self, mutant: Mutant) -> set[str]:
        return self._tests[mutant.path].get(mutant.line, set())

    def noticing(self, mutant: Mutant) -> list[str]:
        """The tests that execute a mutant's line: its module's own first, then by the distance of their modules. Lines
        that are executed by the import of their file belong to all tests of the module.
        """
        found = self._of(mutant)
        inside = any(f.first <= mutant.line <= f.last for f in self.functions if f.path == mutant.path)
        if not found and not inside:
            found = self._own[mutant.path].union(*self._tests[mutant.path].values())
        ordered = sorted(found, key=lambda test: (_distance(module_of(test), mutant.path), test))
        return ordered[:MOST_TESTS]


def first_files(tests: Sequence[str], count: int) -> list[str]:
    """The tests that are in the first `count` files."""
    files = list(dict.fromkeys(test.split("::")[0] for test in tests))[:count]
    return [test for test in tests if test.split("::")[0] in files]


def module_of(test: str) -> str:
    """The module of a unit test: the tests mirror the code."""
    path = PurePosixPath(test.split("::")[0])
    parts = list(path.parts)
    if parts[:2] != ["tests", "unit"]:
        return ""
    return str(PurePosixPath("src", *parts[2:-1], path.name.removeprefix("test_")))


def _distance(module: str, path: str) -> int:
    """The steps from one file to the other in the tree of directories; 0 for the same file."""
    ours, others = module.split("/"), path.split("/")
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(ours, others, strict=False)))
    return len(ours) + len(others) - 2 * shared


def _functions(node: ast.AST, path: str, where: str) -> Iterable[Function]:
    for child in ast.iter_child_nodes(node):
        name = where
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{where}.{child.name}" if where else child.name
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield Function(path, name, child.body[0].lineno, child.end_lineno or child.lineno)
        yield from _functions(child, path, name)


def of_test(names: Sequence[str], traced: Iterable[str]) -> list[str]:
    """The tests with these names, `path::test`, with all their parameters; those of single modules, which are quick,
    first.
    """
    wanted = set(names)
    found = [test for test in traced if test.split("[")[0] in wanted]
    return sorted(found, key=lambda test: not module_of(test))
