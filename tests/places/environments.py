"""A Python environment for each version of Spark, under build/places, created with pip at the first use.

build/places/4.1/bin/python    the newest PySpark 4.1, and the connector's dependencies in the pinned versions
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.places.running import ROOT

PLACE = ROOT / "build" / "places"

NEEDED = ("pyzmq", "pyarrow", "msgspec", "google-crc32c")
"""Of the connector: the project's own dependencies."""

SPACE = 3 << 30
"""Free octets that an environment needs: Spark is downloaded (450 MB), built and unpacked (another 500)."""

VERSION = re.compile(r"\d+\.\d+(\.\d+)?")

_PIN = re.compile(r"^([A-Za-z0-9_.\-\[\]]+==[^ \\]+(?: ; [^\\]+)?)", re.MULTILINE)
_OF_SPARK = re.compile(r"py4j|pyspark\b")


def python(version: str) -> str:
    """The interpreter that has PySpark `version`, such as "4.1"."""
    place = PLACE / version
    ready = place / "ready"
    if not ready.exists():
        _make(place, version)
        ready.touch()
    return str(place / "bin" / "python")


def pins(constraints: str) -> str:
    """The versions that conf/constraints.txt names, without hashes and without what belongs to one Spark."""
    return "".join(f"{pin.strip()}\n" for pin in _PIN.findall(constraints) if not _OF_SPARK.match(pin))


def _make(place: Path, version: str) -> None:
    PLACE.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(PLACE).free
    if free < SPACE:
        raise OSError(
            f"{PLACE} needs {SPACE >> 30} GiB free for PySpark {version} and has {free / 2**30:.1f}"
        )
    print(f"== making {place.relative_to(ROOT)} (takes some minutes: Spark is 450 MB)", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
    pinned = place / "pins.txt"
    pinned.write_text(pins((ROOT / "conf" / "constraints.txt").read_text(encoding="utf-8")), encoding="utf-8")
    pip = [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", "--constraint", str(pinned)]
    subprocess.run([*pip, "setuptools"], check=True)  # builds PySpark, which comes as sources
    subprocess.run(
        [*pip, "--use-pep517", "--no-build-isolation", f"pyspark[connect]=={version}.*", *NEEDED], check=True
    )
