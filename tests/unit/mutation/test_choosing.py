"""The choice of mutants for tests and of tests for mutants."""

from __future__ import annotations

from mutation.choosing import Code, first_files, module_of, of_test

SOURCE = b"LIMIT = 5\n\ndef rare(a):\n    return a < LIMIT\n\ndef usual(a):\n    return a + 1\n"
RARE, BOTH, OTHER = (
    "tests/unit/x/test_a.py::rare",
    "tests/unit/x/test_a.py::both[1]",
    "tests/unit/x/test_b.py::other",
)
CODE = Code(
    {"src/x/a.py": SOURCE, "src/x/b.py": b"def unseen():\n    return 1\n"},
    {RARE: {"src/x/a.py": [4]}, BOTH: {"src/x/a.py": [4, 7]}, OTHER: {"src/x/a.py": [7]}},
)


def test_the_code_of_a_requirement_is_executed_by_its_tests() -> None:
    assert {mutant.where for mutant in CODE.behind("X-1", [RARE], seed=1)} == {"rare"}
    assert {mutant.where for mutant in CODE.behind("X-1", [OTHER], seed=1)} == {"usual"}
    assert CODE.behind("X-1", ["tests/unit/x/test_c.py::none"], seed=1) == []


def test_the_sample_depends_on_the_seed() -> None:
    assert CODE.sample(3, seed=7) == CODE.sample(3, seed=7)
    assert len(set(CODE.sample(100, seed=7))) == len(CODE.mutants("src/x/a.py") + CODE.mutants("src/x/b.py"))


def test_tests_of_a_module_run_first() -> None:
    by_line = {mutant.line: CODE.noticing(mutant) for mutant in CODE.mutants("src/x/a.py")}
    assert by_line[7] == [BOTH, OTHER]
    assert by_line[1] == [BOTH, RARE, OTHER], "lines executed at import belong to all tests of the file"
    assert CODE.noticing(CODE.mutants("src/x/b.py")[0]) == []
    constants = Code({"src/x/b.py": b"LIMIT = 5\n"}, {OTHER: {"src/x/a.py": [7]}})
    assert constants.noticing(constants.mutants("src/x/b.py")[0]) == [OTHER], (
        "though it executes none of its lines"
    )


def test_tests_of_near_modules_run_before_those_of_others() -> None:
    near, far = "tests/unit/x/y/test_z.py::near", "tests/unit/a/b/test_c.py::far"
    constants = Code({"src/x/b.py": b"LIMIT = 5\n"}, {far: {"src/x/b.py": [1]}, near: {"src/x/b.py": [1]}})
    assert constants.noticing(constants.mutants("src/x/b.py")[0]) == [near, far]


def test_a_process_that_imports_a_mutant_runs_whole_files() -> None:
    assert first_files([RARE, OTHER, BOTH], 1) == [RARE, BOTH]
    assert first_files([RARE, OTHER, BOTH], 2) == [RARE, OTHER, BOTH]


def test_names_of_tests_are_parsed() -> None:
    assert module_of(BOTH) == "src/x/a.py"
    assert module_of("tests/integration/test_a.py::one") == ""
    assert of_test(["tests/unit/x/test_a.py::both"], [RARE, BOTH, OTHER]) == [BOTH]
