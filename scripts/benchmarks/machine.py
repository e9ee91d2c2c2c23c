"""On what was measured, and with which versions."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import zmq

from benchmarks.accounting import PROC

PACKAGES = ("pyspark", "pyarrow", "pyzmq", "msgspec", "google-crc32c")


def machine(place: Path, kafka: str) -> dict[str, str]:
    """Where and with what; `place` is on the disk that is measured, `kafka` says the peer's versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "revision": _output("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "file system": _file_system(place),
        "python": platform.python_version(),
        "java": _java(),
        **{name: version(name) for name in PACKAGES},
        "libzmq": zmq.zmq_version(),
        "kafka": kafka,
    }


def _processor() -> str:
    found = re.search(r"^model name\s*: (.*)$", _text(PROC / "cpuinfo"), re.MULTILINE)
    return found[1] if found else platform.machine()


def _file_system(place: Path) -> str:
    """Of the mount with the longest name that `place` lies under."""
    best, kind = "", "unknown"
    for line in _text(PROC / "mounts").splitlines():
        _, mount, found = line.split()[:3]
        if len(mount) > len(best) and (place == Path(mount) or Path(mount) in place.parents):
            best, kind = mount, found
    return kind


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = re.search(r'version "([^"]*)"', _output(f"{home}/bin/java" if home else "java", "-version"))
    return found[1] if found else "unknown"


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return "unknown"
    return (done.stdout or done.stderr).strip() or "unknown"


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
