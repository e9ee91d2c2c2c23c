"""A program that ends without closing its writer is told."""

from __future__ import annotations

import subprocess
import sys

import mtl
from mtl.testing import RunningBroker

PROGRAM = """
import mtl, sys
writer = mtl.connect(sys.argv[1]).writer("r", window_contents=1000)
for number in range(500):
    writer.send(b"x")
if sys.argv[2] == "flushed":
    writer.flush()
"""


def told(broker: RunningBroker, way: str, *options: str) -> str:
    command = [sys.executable, *options, "-c", PROGRAM, broker.endpoint, way]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stderr


def test_the_end_of_a_process_with_an_open_writer_is_reported(mtl_broker: RunningBroker) -> None:
    with mtl.connect(mtl_broker.endpoint) as connection:
        connection.create_resource("r")
    assert "contents are not confirmed and may be lost" in told(mtl_broker, "unflushed")
    assert told(mtl_broker, "flushed") == ""
    assert "ResourceWarning" in told(mtl_broker, "flushed", "-X", "dev")
