"""The structure of the code: imports, lengths of files, and places of tests.

The rules for imports are in .importlinter; this file has those that import-linter cannot express. Files are parsed,
not imported, so the result does not depend on installed packages.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
UNIT_TESTS = ROOT / "tests" / "unit"
OURS = ("mtl", "pyspark_mtl")
_FROM_HERE = {**os.environ, "PYTHONPATH": str(SRC)}

# --- the rules ----------------------------------------------------------------------------------------------

LONGEST_FILE = 700
LONGEST_CONSTRUCTOR = 40

# Modules without their own unit test, and the tests that cover them.
TESTED_ELSEWHERE = {
    "mtl.broker.access.caller": "definitions",
    "mtl.broker.access.session": "tests/unit/mtl/broker/access/test_sessions.py",
    "mtl.broker.leases.lease": "tests/unit/mtl/broker/leases/test_leases.py",
    "mtl.broker.access.password_checks": "tests/unit/mtl/broker/access/test_authentication.py",
    "mtl.broker.commands.needed_logs": "tests/unit/mtl/broker/writing/test_opening.py",
    "mtl.broker.commands.request_names": "tests/unit/mtl/broker/commands/test_authorization.py",
    "mtl.broker.commands.command": "definitions",
    "mtl.broker.assembly": "every test of the core; tests/support/core.py",
    "mtl.broker.runtime.ports": "definitions",
    "mtl.broker.actions": "values; every test of the core carries them out (tests/support/core.py)",
    "mtl.broker.reading.holders": "tests/unit/mtl/broker/commands/test_granting_holders.py",
    "mtl.client.flow_user": "definitions",
    "mtl.client.holder": "tests/integration/test_many_resources.py",
    "mtl.client.holder_part": "tests/integration/test_many_resources.py",
    "mtl.log.open_segment": "tests/unit/mtl/log/test_snapshot.py",
    "mtl.log.queries": "values; tests/unit/mtl/log/test_snapshot.py",
    "mtl.storage.api": "values; every test of an engine makes them",
    "mtl.storage.memory_log": "tests/unit/mtl/storage/test_contract.py",
    "mtl.storage.keys": "definitions; tests/unit/mtl/storage/test_orphans.py, test_local.py",
    "mtl.doors.logins": "tests/integration/test_door_peers.py, with a real broker",
    "mtl.doors.listening": "tests/integration/test_door_tls.py, tests/unit/mtl/doors/test_websocket_server.py",
    "mtl.doors.mbws.door": "tests/integration/test_door_mbws.py",
    "mtl.doors.mbws.peering": "tests/integration/test_door_mbws_peering.py",
    "mtl.doors.micromessage.door": "tests/integration/test_door_micromessage.py",
    "mtl.doors.reactive.door": "tests/integration/test_door_reactive.py",
    "mtl.doors.reactive.peer": "tests/integration/test_door_reactive.py",
    "mtl.doors.reactive.streams": "tests/integration/test_door_reactive.py",
    "mtl.doors.reactive.transports": "tests/integration/test_door_reactive.py, tests/integration/test_door_tls.py",
    "mtl.doors.running": "tests/integration/test_doors.py: doors as processes",
    "mtl.doors.websocket_client": "tests/integration/test_door_mbws.py and others",
    "mtl.pytest_plugin": "every test that asks for a broker",
    "mtl.client.connecting": "tests/unit/mtl/client/test_connection.py",
    "mtl.client.consuming": "tests/unit/mtl/client/test_consumer.py, tests/unit/mtl/client/aio/test_consumer.py",
    "mtl.client.client_requests": "tests/unit/mtl/client/test_resources.py",
    "mtl.client.reading": "tests/unit/mtl/client/test_reader.py, tests/unit/mtl/client/aio/test_reader.py",
    "mtl.client.writing": "tests/unit/mtl/client/test_writer.py, tests/unit/mtl/client/aio/test_writer.py",
    "mtl.net.endpoint": "definitions; tests/support/memory_network.py is the other implementation",
    "mtl.net.network": "tests/unit/mtl/net/test_link.py",
    "mtl.net.origin": "definitions",
    "mtl.net.ports": "definitions",
}

# What `import <package>` must not load, so that it is quick and works without the extras.
NOT_LOADED = {
    "mtl": {"pyspark", "zmq"},
    "pyspark_mtl": {"zmq"},
}

# --- the code -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    is_package: bool

    @property
    def tree(self) -> ast.Module:
        return parse(self.path)


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@cache
def modules() -> dict[str, Module]:
    found = {}
    for path in sorted(chain.from_iterable((SRC / package).rglob("*.py") for package in OURS)):
        parts = path.relative_to(SRC).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found[name] = Module(name, path, is_package)
    return found


def has_code(module: Module) -> bool:
    """Defines a function or a class; constants and re-exports need no test of their own."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return any(isinstance(node, definitions) for node in ast.walk(module.tree))


def mirror(module: Module) -> Path:
    return UNIT_TESTS / module.path.parent.relative_to(SRC)


def unit_tests(module: Module) -> list[Path]:
    """tests/unit/mtl/wire/test_fields.py, or several test_fields_*.py, for src/mtl/wire/fields.py."""
    base = module.path.stem.strip("_")
    return [*mirror(module).glob(f"test_{base}.py"), *mirror(module).glob(f"test_{base}_*.py")]


# --- the tests ----------------------------------------------------------------------------------------------


def test_imports_keep_to_the_rules() -> None:
    """In a separate process: it disables every logger."""
    lint_imports = Path(sys.executable).with_name("lint-imports")
    command = [str(lint_imports), "--config", str(ROOT / ".importlinter"), "--no-cache", "--no-logo"]
    done = subprocess.run(command, cwd=ROOT, env=_FROM_HERE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_module_imports_itself_indirectly() -> None:
    """Neither through others nor for types only. import-linter checks cycles of packages, not of modules: it
    ignores those between a package and its own modules, and the exceptions in .importlinter.
    """
    graph = grimp.build_graph(*OURS, cache_dir=None)
    importers = {name: graph.find_modules_directly_imported_by(name) - {name} for name in graph.modules}
    try:
        TopologicalSorter(importers).prepare()
    except CycleError as e:
        pytest.fail(f"a circle of imports: {' <- '.join(e.args[1])}")


def test_imported_modules_have_names_and_not_letters() -> None:
    """Only the names that a library's own documents use are short, such as `pa` and `st`."""
    short = re.compile(
        r"^\s*from (?:mtl|pyspark_mtl|tests|benchmarks)[\w.]* import .* as \w{1,2}$", re.MULTILINE
    )
    files = chain.from_iterable((ROOT / place).rglob("*.py") for place in ("src", "tests", "scripts"))
    found = {str(path.relative_to(ROOT)): short.findall(path.read_text(encoding="utf-8")) for path in files}
    assert {name: lines for name, lines in found.items() if lines} == {}


def test_files_have_a_bounded_length() -> None:
    lengths = {name: len(module.path.read_bytes().splitlines()) for name, module in modules().items()}
    too_long = {name: length for name, length in lengths.items() if length > LONGEST_FILE}
    assert not too_long, f"split what is over {LONGEST_FILE} lines"


def test_constructors_have_a_bounded_length() -> None:
    """A longer constructor depends on too many parts, or does their work."""
    too_long = [
        f"{name}.{made.name}: from line {constructor.lineno}"
        for name, module in modules().items()
        for made in ast.walk(module.tree)
        if isinstance(made, ast.ClassDef)
        for constructor in made.body
        if isinstance(constructor, ast.FunctionDef)
        and constructor.name == "__init__"
        and (constructor.end_lineno or 0) - constructor.lineno >= LONGEST_CONSTRUCTOR
    ]
    assert not too_long, f"split what is over {LONGEST_CONSTRUCTOR} lines"


def late(node: ast.AST) -> bool:
    """Whether this statement would run code of its own when work that waits within it is dropped."""
    if isinstance(node, ast.Try):
        caught = {
            n.id
            for h in node.handlers
            for n in ast.walk(h.type or ast.Name("BaseException"))
            if isinstance(n, ast.Name)
        }
        return bool(node.finalbody or caught & {"BaseException", "GeneratorExit"})
    if isinstance(node, ast.With):
        return not all("suppress" in ast.unparse(item.context_expr) for item in node.items)
    return isinstance(node, ast.AsyncWith | ast.AsyncFor)


def test_dropped_work_runs_no_code() -> None:
    """Work of the core that has not ended when the broker stops is dropped at any time (`mtl.broker.steps`)."""
    found = [
        f"{name}: line {node.lineno}"
        for name, module in modules().items()
        if name.startswith("mtl.broker.")
        for node in ast.walk(module.tree)
        if isinstance(node, ast.stmt) and late(node) and any(isinstance(n, ast.Await) for n in ast.walk(node))
    ]
    assert not found, (
        "no `finally`, context or handler of GeneratorExit around a step: handle the errors by their types"
    )


@pytest.mark.parametrize(
    ("code", "is_late"),
    [
        ("try:\n    await x\nfinally:\n    y()", True),
        ("try:\n    await x\nexcept:\n    y()", True),
        ("try:\n    await x\nexcept (A, GeneratorExit):\n    y()", True),
        ("try:\n    await x\nexcept (A, B):\n    y()", False),
        ("with lock:\n    await x", True),
        ("with suppress(A):\n    await x", False),
        ("async with lock:\n    pass", True),
    ],
)
def test_code_that_dropped_work_would_run_is_found(code: str, *, is_late: bool) -> None:
    assert late(ast.parse(code).body[0]) is is_late


def test_unit_tests_mirror_the_source() -> None:
    """From the first unit test of a package on, each of its modules has one."""
    untested = [
        name
        for name, module in modules().items()
        if has_code(module)
        and name not in TESTED_ELSEWHERE
        and any(mirror(module).glob("test_*.py"))
        and not unit_tests(module)
    ]
    assert not untested, "write tests/unit/.../test_<name>.py, or say in TESTED_ELSEWHERE what tests them"


def test_exceptions_from_the_mirror_are_needed() -> None:
    stale = [name for name in TESTED_ELSEWHERE if name not in modules() or unit_tests(modules()[name])]
    assert not stale, "remove these from TESTED_ELSEWHERE"


@pytest.mark.parametrize("package", OURS)
def test_importing_a_package_loads_only_required_modules(package: str) -> None:
    program = f"import sys, {package}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not NOT_LOADED[package] & set(result.stdout.split())


def test_referenced_sections_of_the_protocol_exist() -> None:
    sections = set(
        re.findall(r"^#+ ([\d.]*\d)", (ROOT / "PROTOCOL.md").read_text(encoding="utf-8"), re.MULTILINE)
    )
    named = {
        section
        for path in chain(SRC.rglob("*.py"), UNIT_TESTS.rglob("*.py"))
        for section in re.findall(r"PROTOCOL\.md (\d(?:\.\d)?)", path.read_text(encoding="utf-8"))
    }
    assert len(named) > 10
    assert named <= sections
