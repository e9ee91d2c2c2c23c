"""One place, in the Python and with the Spark of this process: python -m tests.places.run PLACE ENDPOINT REPORT CASE...

Every line of REPORT is a JSON object: first {"spark", "java"}, then {"case", "seconds", "error"} as each case ends.
Files are made in the current directory.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import TextIO

import pyspark

import mtl
from tests.places.cases import CASES, Ground
from tests.places.places import PLACES


def main() -> None:
    """Run the named cases, or all. Always ends with 0; failures are in the report."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that a cluster is ended as well
    place, endpoint, report, *names = sys.argv[1:]
    here = Path.cwd()
    with (
        Path(report).open("a", encoding="utf-8", buffering=1) as lines,
        PLACES[place](here) as spark,
        mtl.connect(endpoint) as connection,
    ):
        java = spark.sql("SELECT java_method('java.lang.System', 'getProperty', 'java.version')").first()
        _write(lines, spark=pyspark.__version__, java=java[0] if java else "")
        for name in names or CASES:
            # Places share a broker, so the name of a resource has the place and the process.
            own = f"{name.replace(' ', '-')}.{place}.{os.getpid()}"
            ground = Ground(spark, connection, endpoint, own, here / own)
            began, error = time.monotonic(), None
            try:
                CASES[name](ground)
            except Exception:  # noqa: BLE001 whatever it is, it is what the report says
                error = traceback.format_exc()
            _write(lines, case=name, seconds=time.monotonic() - began, error=error)


def _write(report: TextIO, **what: object) -> None:
    report.write(json.dumps(what) + "\n")


if __name__ == "__main__":
    main()
