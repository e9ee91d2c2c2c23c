"""One fuzz target in a separate process, since libFuzzer takes over the process: worker.py TARGET [libFuzzer options].

Prints an error if atheris has no wheels for this version of Python.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

try:
    import atheris
except ImportError:
    sys.exit("fuzz: atheris is needed, which has wheels for Python 3.11 to 3.13 on Linux (x86-64) only")

with atheris.instrument_imports(include=["mtl", "pyspark_mtl", "scramp", "tests.fuzzing"]):
    from tests.fuzzing.targets import BY_NAME


def main() -> None:
    """Never returns: libFuzzer ends the process."""
    target = BY_NAME[sys.argv[1]]
    atheris.Setup([sys.argv[0], *sys.argv[2:]], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
