"""A process that runs targets, so that an input that ends it fails one test and not the test run.

`python -m tests.fuzzing.apart` reads lines of JSON from stdin: {"target", "data" (hexadecimal), "check"}; "check" is
"run" or "bounds". It answers each with a line: the failure, or an empty one.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import traceback
import tracemalloc
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.fuzzing.target import Target

PER_OCTET = 200
"""Octets of memory for each of an input: an empty entry of a field table has three and becomes a string in a dict."""

AT_LEAST = 256 << 10
"""And for inputs of any size: error messages, tracebacks, objects created at first use."""

SLOWEST_S = 2.0


def run(target: Target, data: bytes) -> None:
    """AssertionError with the input if the target fails for it."""
    try:
        target.run(data)
    except Exception as error:
        raise AssertionError(f"{target.name} failed for {data.hex()}") from error


def check_bounds(target: Target, data: bytes) -> None:
    """AssertionError if the target takes too much memory or time for an input, which has run once before."""
    tracemalloc.start()
    began = time.perf_counter()
    try:
        target.run(data)
    finally:
        took, (_, peak) = time.perf_counter() - began, tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < AT_LEAST + PER_OCTET * len(data), data.hex()
    assert took < SLOWEST_S, data.hex()


CHECKS = {"run": run, "bounds": check_bounds}


class Apart:
    """The process; a context manager. It is started again after an input has ended it."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def check(self, name: str, target: Target, data: bytes) -> None:
        """Run the check of this name there. AssertionError if it fails, or if the process ends."""
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.fuzzing.apart"],
                cwd=Path(__file__).parents[2],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"target": target.name, "data": data.hex(), "check": name}) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            self._process = None
            raise AssertionError(f"{target.name}: the process ended ({process.wait()}) for {data.hex()}")
        failure = json.loads(answer)
        assert not failure, failure

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.communicate()


def main() -> None:
    """Answer until stdin ends."""
    from tests.fuzzing.targets import BY_NAME  # noqa: PLC0415 only here are all decoders needed

    for line in sys.stdin:
        asked = json.loads(line)
        failure = ""
        try:
            CHECKS[asked["check"]](BY_NAME[asked["target"]], bytes.fromhex(asked["data"]))
        except Exception:  # noqa: BLE001 any failure is the answer
            failure = traceback.format_exc()
        sys.stdout.write(json.dumps(failure) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
