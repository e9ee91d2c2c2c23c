"""The short form of scripts/fuzz: known difficult inputs, and a few mutations of them, with bounds on memory."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mtl.errors import Malformed
from tests.fuzzing.apart import CHECKS, Apart
from tests.fuzzing.target import FINDINGS, Target, codec
from tests.fuzzing.targets import BY_NAME, TARGETS

ROOT = Path(__file__).parents[2]
MUTATIONS = 300


@pytest.fixture(scope="module")
def apart() -> Iterator[Apart]:
    with Apart() as process:
        yield process


def checked(name: str, target: Target, apart: Apart) -> Callable[[bytes], None]:
    """The check of this name of one input; in the other process if the target asks for it."""
    if target.apart:
        return lambda data: apart.check(name, target, data)
    return lambda data: CHECKS[name](target, data)


def mutated(rng: random.Random, data: bytes) -> bytes:
    """One to four small changes."""
    image = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(image) + 1)
        match rng.randrange(4):
            case 0:
                image[at:at] = rng.randbytes(rng.randint(1, 8))
            case 1:
                del image[at : at + rng.randint(1, 8)]
            case 2:
                image[at : at + 4] = rng.choice(
                    (b"\0\0\0\0", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\1")
                )
            case _:
                image[at : at + 1] = rng.randbytes(1)
    return bytes(image)


@pytest.mark.requirement("MTL-50", "MTL-51", "MTL-110", "MTL-111")
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_any_octets_give_a_value_or_the_declared_error(target: Target, apart: Apart) -> None:
    rng = random.Random(target.name)
    known = target.known()
    run = checked("run", target, apart)
    for data in [*known, *(mutated(rng, rng.choice(known)) for _ in range(MUTATIONS))]:
        run(data)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_memory_and_time_are_bounded_by_the_size_of_the_input(target: Target, apart: Apart) -> None:
    rng = random.Random(target.name)
    known = target.known()
    inputs = [*known, *(mutated(rng, rng.choice(known)) for _ in range(30))]
    run, check = checked("run", target, apart), checked("bounds", target, apart)
    for data in inputs:
        run(data)  # one-time allocations happen now
    for data in inputs:
        check(data)


def test_every_finding_belongs_to_a_target() -> None:
    assert {path.name for path in FINDINGS.iterdir() if path.is_dir()} <= set(BY_NAME)


# The check is tested with results that it must reject.


def test_another_error_is_a_failure() -> None:
    with pytest.raises(ZeroDivisionError):
        codec(lambda data: 1 // len(data))(b"")


def test_a_value_that_changes_when_encoded_again_is_a_failure() -> None:
    codec(bytes.decode, str.encode)(b"x")
    with pytest.raises(AssertionError, match="came back"):
        codec(bytes.decode, lambda text: text.encode() + b"!")(b"x")


def test_an_input_that_ends_the_process_is_a_failure(apart: Apart) -> None:
    fatal = replace(BY_NAME["short"], name="a name without a target")
    with pytest.raises(AssertionError, match="KeyError"):
        apart.check("run", fatal, b"")
    process = apart._process
    assert process is not None
    process.kill()
    process.wait()
    with pytest.raises((AssertionError, BrokenPipeError)):
        apart.check("run", BY_NAME["short"], b"")


def test_a_memory_error_is_a_failure() -> None:
    def greedy(_data: bytes) -> bytes:
        raise Malformed("too much") from MemoryError()

    with pytest.raises(AssertionError, match="memory"):
        codec(greedy)(b"")


def test_the_script_counts_its_inputs(tmp_path: Path) -> None:
    pytest.importorskip("atheris", reason="has wheels for some platforms only")
    command = [
        sys.executable,
        str(ROOT / "scripts" / "fuzzing" / "main.py"),
        "--target",
        "short",
        "--inputs",
        "20000",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    row = next(line.split() for line in ended.stdout.splitlines() if line.startswith("short"))
    assert int(row[1].replace(",", "")) >= 20_000
