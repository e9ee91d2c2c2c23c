"""The description of the measured machine and of the versions."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import psutil
import zmq

from benchmarks.accounting import PROC

PACKAGES = ("pyspark", "pyarrow", "pyzmq", "msgspec", "google-crc32c")


NOT_MEASURED = "not measured"
"""The value for a peer that took no part."""

UNKNOWN = "unknown"

_ASIDE = {"date", "revision"}
"""Members that may differ between two runs without changing their figures."""


def machine(place: Path) -> dict[str, str]:
    """The machine and the versions; `place` is on the measured disk."""
    memory = psutil.virtual_memory().total / 2**30
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "revision": revision(Path(__file__).parent),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "memory": f"{memory:.0f} GiB",
        "system": f"{platform.system()} {platform.release()}",
        "file system": _file_system(place),
        "python": platform.python_version(),
        "java": _java(),
        **{name: version(name) for name in PACKAGES},
        "libzmq": zmq.zmq_version(),
    }


def differences(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The differences in machine or versions; a peer that took no part in one of the runs is not a difference."""
    return [
        f"{name}: {then.get(name)} -> {now.get(name)}"
        for name in {**then, **now}
        if name not in _ASIDE
        and then.get(name) != now.get(name)
        and NOT_MEASURED not in {then.get(name), now.get(name)}
    ]


def revision(repository: Path) -> str:
    """The commit, and whether files have changed since. The baseline does not count: a run saves it at its end.
    UNKNOWN if git reports nothing, which is not a change.
    """
    git = ("git", "-C", str(repository))
    commit = _output(*git, "describe", "--always")
    changed = _output(
        *git, "diff", "--name-only", "HEAD", "--", ":/", ":(exclude,top)scripts/benchmarks/baseline.json"
    )
    return commit if changed == UNKNOWN else f"{commit}-dirty"


def _processor() -> str:
    found = re.search(r"^model name\s*: (.*)$", _text(PROC / "cpuinfo"), re.MULTILINE)
    return found[1] if found else platform.machine()


def _file_system(place: Path) -> str:
    """The file system of the mount with the longest path that contains `place`."""
    mounts = [mount for mount in psutil.disk_partitions(all=True) if place.is_relative_to(mount.mountpoint)]
    return str(max(mounts, key=lambda mount: len(mount.mountpoint)).fstype) if mounts else UNKNOWN


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    found = re.search(r'version "([^"]*)"', _output(f"{home}/bin/java" if home else "java", "-version"))
    return found[1] if found else UNKNOWN


def _output(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return UNKNOWN
    return (done.stdout or done.stderr).strip() or UNKNOWN


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
