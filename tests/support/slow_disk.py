"""A broker with a delay in every read of its disk, and the latency of a writer during reads of such a disk.

python -m tests.support.slow_disk serve SECONDS ARGUMENTS    `mtl ARGUMENTS` with so many seconds for each read
python -m tests.support.slow_disk measure SECONDS            the latency of a writer, without and with a cold reader
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import mtl
from mtl.cli import main as cli
from mtl.log.files import RealFile
from mtl.testing import broker
from tests.support.processes import killed_after

CONTENTS, OCTETS, SEGMENT = 2_000, 20_000, 1 << 20
"""The cold log: 40 MB in as many segments."""


class Latency(NamedTuple):
    """Seconds from a content to its Confirm: the median, the 99th percentile and the longest of `writes`."""

    median: float
    p99: float
    longest: float
    writes: int


def serve(seconds: float, arguments: list[str]) -> None:
    """Run the command line in this process."""
    pread = RealFile.pread

    def slow(self: RealFile, size: int, offset: int) -> bytes:
        time.sleep(seconds)
        return pread(self, size, offset)

    RealFile.pread = slow  # type: ignore[method-assign]
    sys.argv = ["mtl", *arguments]
    cli.main()


def fill(data: Path) -> None:
    """Make a directory with a log "cold" and an empty one "hot"."""
    config = data.parent / "mtl.toml"
    config.write_text(f"segment-bytes = {SEGMENT}\n")
    with broker(data, config) as running, mtl.connect(running.endpoint) as connection:
        connection.create_resource("hot")
        connection.create_resource("cold")
        with connection.writer("cold") as writer:
            for number in range(CONTENTS):
                writer.send(number.to_bytes(4, "big") * (OCTETS // 4))


@contextmanager
def slow_broker(data: Path, seconds: float) -> Iterator[str]:
    """The endpoint of a broker whose disk needs this many seconds for each read."""
    command = [
        sys.executable,
        "-m",
        "tests.support.slow_disk",
        "serve",
        str(seconds),
        "broker",
        "--until-eof",
    ]
    command += ["--data", str(data), "--endpoint", "tcp://127.0.0.1:0"]
    with killed_after(
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    ) as process:
        assert process.stdout is not None
        ready = re.match(r"mtl broker ready at (\S+) ", process.stdout.readline())
        assert ready is not None
        yield ready[1]


def read(endpoint: str) -> int:
    """Read the cold log; returns how many contents it has."""
    with mtl.connect(endpoint) as connection, connection.reader("cold", start="earliest") as reader:
        return sum(reader.next(60.0) is not None for _ in range(CONTENTS))


def latency(endpoint: str, count: int, *, beside_reader: bool) -> Latency:
    """Write to "hot", each content after the Confirm of the one before: `count` of them, or until "cold" is read."""
    times: list[float] = []
    with (
        ThreadPoolExecutor(1) as thread,
        mtl.connect(endpoint) as connection,
        connection.writer("hot") as writer,
    ):
        writer.send(b"first")
        writer.flush()
        reading = thread.submit(read, endpoint) if beside_reader else None
        while len(times) < count or (reading is not None and not reading.done()):
            began = time.perf_counter()
            writer.send(b"x" * 100)
            writer.flush()
            times.append(time.perf_counter() - began)
        assert reading is None or reading.result() == CONTENTS
    times.sort()
    return Latency(statistics.median(times), times[int(len(times) * 0.99)], times[-1], len(times))


def measure(seconds: float) -> None:
    """Print both latencies in milliseconds."""
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "data"
        fill(data)
        for broker_client in (False, True):
            with slow_broker(data, seconds) as endpoint:
                found = latency(endpoint, 300, beside_reader=broker_client)
            name = "beside a cold reader" if broker_client else "alone"
            sys.stdout.write(
                f"writer {name}: median {found.median * 1e3:.1f} ms, p99 {found.p99 * 1e3:.1f} ms, longest "
                f"{found.longest * 1e3:.1f} ms of {found.writes}\n"
            )


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(float(sys.argv[2]), sys.argv[3:])
    else:
        measure(float(sys.argv[2]))
