"""The Spark of the pip package, with bytecode in the archives from which each of its Python processes imports PySpark.

A streaming query starts a process for its source and one for each commit, with a start timeout of ten seconds.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import compile_pyspark

VARIABLE = "SPARK_HOME"

MADE = Path(__file__).parents[2] / "build" / "tests"


def compiled() -> Path:
    """Created at the first call; all files except the archives are links to the package."""
    home = MADE / f"spark-{version('pyspark')}-{sys.implementation.cache_tag}"
    if not home.exists():
        MADE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=MADE) as place:
            _make(Path(place))
            try:
                Path(place, "spark").rename(home)
            except OSError:
                assert home.exists()  # another process was faster
    return home


def _make(place: Path) -> None:
    package, home = compile_pyspark.spark_home(), place / "spark"
    archives = home / "python" / "lib"
    archives.mkdir(parents=True)
    for part in package.iterdir():
        if part.name != "python":
            (home / part.name).symlink_to(part)
    for archive in (package / "python" / "lib").glob("*.zip"):
        compile_pyspark.compile_archive(Path(shutil.copy(archive, archives)))
