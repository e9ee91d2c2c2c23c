"""The shape of the code: who imports whom, how long a file is, and where its tests are.

Files are parsed, not imported, so this passes or fails the same whatever is installed.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"
UNIT_TESTS = ROOT / "tests" / "unit"
OURS = ("mtl", "pyspark_mtl")

# --- the rules ----------------------------------------------------------------------------------------------

# A layer, and the layers below it that it may import; itself and COMMON always. Lowest first. A module belongs to the
# longest name here that it starts with; "mtl" alone is only src/mtl/__init__.py.
COMMON = {"mtl.errors", "mtl.limits", "mtl.broker.queues.limits"}
STORED_VALUES = {"mtl.storage.api", "mtl.storage.keys", "mtl.storage.records", "mtl.storage.unreadable"}
LAYERS: dict[str, set[str]] = {
    "mtl.errors": set(),
    "mtl.limits": set(),
    "mtl.broker.queues.limits": set(),
    "mtl.wire": set(),
    "mtl.protocol": {"mtl.wire"},
    "mtl.profiles": {"mtl.wire", "mtl.protocol"},
    "mtl.net": {"mtl.wire", "mtl.protocol"},
    "mtl.log": {"mtl.log.retention"},  # knows neither MTL nor ZeroMQ
    "mtl.log.retention": set(),  # a policy, without a log
    "mtl.storage.api": {
        "mtl.wire",
        "mtl.log",
        "mtl.log.retention",
        "mtl.storage.keys",
        "mtl.storage.records",
    },  # values of mtl.log
    "mtl.storage.keys": {"mtl.storage.records"},
    "mtl.storage.records": {"mtl.wire"},
    "mtl.storage.unreadable": {"mtl.wire", "mtl.storage.records"},
    "mtl.storage": {"mtl.wire", "mtl.log", *STORED_VALUES},  # the engines: never the broker
    "mtl.broker": {
        "mtl.wire",
        "mtl.protocol",
        "mtl.profiles",
        "mtl.net",
        "mtl.log.retention",
        *STORED_VALUES,
    },
    "mtl.broker.runtime": {
        "mtl.broker",
        "mtl.wire",
        "mtl.protocol",
        "mtl.net",
        "mtl.log",
        "mtl.storage",
        *STORED_VALUES,
    },
    "mtl.client": {"mtl.wire", "mtl.protocol", "mtl.net"},  # never the broker or its log
    "mtl.aio": {"mtl.client"},
    "mtl": {"mtl.client", "mtl.aio"},
    "mtl.doors": {
        "mtl",
        "mtl.wire",
        "mtl.protocol",
        "mtl.client",
        "mtl.net",
    },  # clients of the broker on one side
    "mtl.conformance": set(),  # checks from outside, by nothing of ours
    "mtl.testing": {"mtl.*"},
    "mtl.pytest_plugin": {"mtl.*"},
    "mtl.cli": {"mtl.*", "pyspark_mtl.checkpoint"},  # what a query left on disk; neither needs Spark
    "mtl.__main__": {"mtl.*"},
    "pyspark_mtl": {"mtl", "mtl.wire", "mtl.client"},  # an ordinary client
    "pyspark_mtl.checkpoint": {"pyspark_mtl", "mtl.wire"},
}

# A package that is not ours, and the only layers that may import it.
ONLY_IN = {
    "zmq": {"mtl.net", "mtl.conformance"},
    "pyspark": {"pyspark_mtl"},
    "py4j": {"pyspark_mtl"},
    "typer": {"mtl.cli", "mtl.__main__"},
    "rich": {"mtl.cli", "mtl.__main__"},
    "websockets": {"mtl.doors"},
    "pytest": {"mtl.pytest_plugin"},
}

# Pure layers: no sockets, threads or clocks; time is an argument.
PURE = ("mtl.wire", "mtl.protocol", "mtl.profiles", "mtl.broker")
IMPURE = {
    "asyncio",
    "ctypes",
    "multiprocessing",
    "select",
    "selectors",
    "socket",
    "sqlite3",
    "threading",
    "time",
}
# Of the broker, only mtl.broker.runtime reads the clock and has threads.

LONGEST_FILE = 500
LONGEST_CONSTRUCTOR = 40

# Modules without a unit test of their own, and what tests them instead.
TESTED_ELSEWHERE = {
    "mtl.broker.access.caller": "definitions",
    "mtl.broker.access.session": "tests/unit/mtl/broker/access/test_sessions.py",
    "mtl.broker.leases.lease": "tests/unit/mtl/broker/leases/test_leases.py",
    "mtl.broker.commands.needed_logs": "tests/unit/mtl/broker/writing/test_opening.py",
    "mtl.broker.commands.names_asked": "tests/unit/mtl/broker/commands/test_authorization.py",
    "mtl.broker.commands.command": "definitions",
    "mtl.broker.assembly": "every test of the core; tests/support/core.py",
    "mtl.broker.runtime.dispatch": "tests/support/core.py: every test of the core",
    "mtl.broker.runtime.ports": "definitions",
    "mtl.broker.actions": "values; every test of the core carries them out (tests/support/core.py)",
    "mtl.storage.api": "values; every test of an engine makes them",
    "mtl.storage.memory_log": "tests/unit/mtl/storage/test_contract.py",
    "mtl.storage.keys": "definitions; tests/unit/mtl/storage/test_orphans.py, test_local.py",
    "mtl.doors.bridge": "tests/integration/test_door_*.py: a door in front of a real broker",
    "mtl.doors.logins": "tests/integration/test_door_peers.py, with a real broker",
    "mtl.doors.listening": "tests/integration/test_door_tls.py, tests/unit/mtl/doors/test_websocket.py",
    "mtl.doors.mbws.client": "tests/integration/test_door_mbws_client.py",
    "mtl.doors.mbws.door": "tests/integration/test_door_mbws.py",
    "mtl.doors.mbws.intake": "tests/integration/test_door_mbws.py",
    "mtl.doors.mbws.keeping": "tests/integration/test_door_mbws_restart.py",
    "mtl.doors.mbws.line": "tests/integration/test_door_mbws_client.py",
    "mtl.doors.mbws.peering": "tests/integration/test_door_mbws_peering.py",
    "mtl.doors.mbws.peer": "tests/integration/test_door_mbws.py",
    "mtl.doors.mc0.client": "tests/integration/test_door_mc0.py",
    "mtl.doors.mc0.door": "tests/integration/test_door_mc0.py",
    "mtl.doors.mc0.peer": "tests/integration/test_door_mc0.py",
    "mtl.doors.micromessage.client": "tests/integration/test_door_micromessage.py",
    "mtl.doors.micromessage.door": "tests/integration/test_door_micromessage.py",
    "mtl.doors.micromessage.peer": "tests/integration/test_door_micromessage.py",
    "mtl.doors.reactive.client": "tests/integration/test_door_reactive.py",
    "mtl.doors.reactive.door": "tests/integration/test_door_reactive.py",
    "mtl.doors.reactive.intake": "tests/integration/test_door_reactive.py",
    "mtl.doors.reactive.over_websocket": "tests/integration/test_door_reactive_websocket.py",
    "mtl.doors.reactive.peer": "tests/integration/test_door_reactive.py",
    "mtl.doors.reactive.streams": "tests/integration/test_door_reactive.py",
    "mtl.doors.reactive.transports": "tests/integration/test_door_reactive.py, tests/integration/test_door_tls.py",
    "mtl.doors.running": "tests/integration/test_doors.py: doors as processes",
    "mtl.doors.websocket_client": "tests/integration/test_door_mbws.py and others",
    "mtl.errors": "definitions; every refusal's test raises them",
    "mtl.net.dealer": "tests/unit/mtl/net/test_link.py",
    "mtl.net.endpoint": "definitions; tests/support/memory_network.py is the other implementation",
    "mtl.net.network": "tests/unit/mtl/net/test_link.py",
    "mtl.broker.settings": "definitions",
    "mtl.net.origin": "definitions",
    "mtl.net.ports": "definitions",
    "mtl.net.req": "tests/unit/mtl/net/test_link.py",
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


@dataclass(frozen=True)
class Import:
    module: Module
    line: int
    target: str

    def __str__(self) -> str:
        return f"{self.module.path.relative_to(ROOT)}:{self.line} imports {self.target}"


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


@cache
def imports() -> list[Import]:
    return [found for module in modules().values() for found in imports_of(module)]


def imports_of(module: Module) -> list[Import]:
    """Every import statement, also inside functions and under TYPE_CHECKING: types have a direction too."""
    found = []
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found += [Import(module, node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = absolute(module, node)
            found += [Import(module, node.lineno, submodule(base, alias.name)) for alias in node.names]
    return found


def absolute(module: Module, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    package = module.name.split(".")
    package = package[: len(package) - node.level + module.is_package]
    return ".".join([*package, *([node.module] if node.module else [])])


def submodule(base: str, name: str) -> str:
    """`from mtl import wire` imports mtl.wire; `from mtl import connect` imports mtl."""
    candidate = f"{base}.{name}"
    return candidate if candidate in modules() else base


def layer(name: str) -> str | None:
    if name in LAYERS:
        return name
    parts = name.split(".")
    prefixes = (".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1))
    return next((prefix for prefix in prefixes if prefix in LAYERS and prefix != "mtl"), None)


def is_ours(name: str) -> bool:
    return name.split(".")[0] in OURS


def allows(own: str, other: str) -> bool:
    allowed = LAYERS[own]
    if own == other or other in allowed:
        return True
    return (other in COMMON and own not in COMMON) or ("mtl.*" in allowed and other.split(".")[0] == "mtl")


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


def test_every_module_belongs_to_a_layer() -> None:
    homeless = [name for name in modules() if layer(name) is None]
    assert not homeless, "add these to LAYERS"


def test_imports_point_down() -> None:
    wrong = []
    for found in imports():
        own, other = layer(found.module.name), layer(found.target)
        if own and is_ours(found.target) and not (other and allows(own, other)):
            wrong.append(f"{found}, which {own} may not")
    assert not wrong, "\n".join(wrong)


def test_no_module_needs_itself() -> None:
    """Not by way of others, and not for types only."""
    graph: dict[str, set[str]] = {name: set() for name in modules()}
    for found in imports():
        if found.target in graph and found.target != found.module.name:
            graph[found.module.name].add(found.target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as e:
        pytest.fail(f"a circle of imports: {' <- '.join(e.args[1])}")


def test_packages_of_others_stay_in_their_layer() -> None:
    wrong = []
    for found in imports():
        homes = ONLY_IN.get(found.target.split(".")[0])
        if homes is not None and layer(found.module.name) not in homes:
            wrong.append(f"{found}, which only {', '.join(sorted(homes))} may")
    assert not wrong, "\n".join(wrong)


def test_pure_layers_have_no_sockets_threads_or_clocks() -> None:
    wrong = [
        str(found)
        for found in imports()
        if layer(found.module.name) in PURE and found.target.split(".")[0] in IMPURE
    ]
    assert not wrong, "\n".join(wrong)


def test_files_can_be_read_in_one_sitting() -> None:
    lengths = {name: len(module.path.read_bytes().splitlines()) for name, module in modules().items()}
    too_long = {name: length for name, length in lengths.items() if length > LONGEST_FILE}
    assert not too_long, f"split what is over {LONGEST_FILE} lines"


def test_constructors_fit_on_a_screen() -> None:
    """A longer one knows too many parts, or does their work."""
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


def test_exceptions_from_the_mirror_are_still_needed() -> None:
    stale = [name for name in TESTED_ELSEWHERE if name not in modules() or unit_tests(modules()[name])]
    assert not stale, "remove these from TESTED_ELSEWHERE"


@pytest.mark.parametrize("package", OURS)
def test_importing_a_package_loads_only_what_it_needs(package: str) -> None:
    program = f"import sys, {package}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not NOT_LOADED[package] & set(result.stdout.split())


# The rules above are only as good as the reading of the code.


@pytest.mark.parametrize(
    ("source", "targets"),
    [
        ("import mtl.wire", ["mtl.wire"]),
        ("import zmq.auth as auth", ["zmq.auth"]),
        ("from mtl import errors", ["mtl.errors"]),
        ("from mtl import connect", ["mtl"]),
        ("from . import errors", ["mtl.errors"]),
        ("from .errors import Malformed", ["mtl.errors"]),
        ("def f():\n    import socket", ["socket"]),
    ],
)
def test_reads_imports(source: str, targets: list[str], tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(source, encoding="utf-8")
    found = imports_of(Module("mtl.module", path, is_package=False))
    assert [one.target for one in found] == targets


def test_every_section_of_the_protocol_that_is_referred_to_is_there() -> None:
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


@pytest.mark.parametrize(
    ("own", "other", "allowed"),
    [
        ("mtl.wire", "mtl.limits", True),
        ("mtl.limits", "mtl.errors", False),
        ("mtl.wire", "mtl.protocol", False),
        ("mtl.log", "mtl.wire", False),
        ("mtl.cli", "mtl.broker", True),
        ("mtl.cli", "pyspark_mtl", False),
        ("mtl.client", "mtl.broker", False),
        ("pyspark_mtl", "mtl", True),
        ("pyspark_mtl", "mtl.log", False),
    ],
)
def test_knows_the_direction(own: str, other: str, *, allowed: bool) -> None:
    assert allows(own, other) is allowed
