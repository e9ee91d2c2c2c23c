"""Put bytecode into the archives that Spark starts Python from, so that queries start sooner.

Every Python process of Spark (the reader of a Python source, an executor's workers) imports PySpark out of
SPARK_HOME/python/lib, whose archives have source only: each of them compiles PySpark again, for more than half a second
of processor time. Run this once where Spark is installed, best during the build of an image, with the Python that
Spark's workers use (another version ignores the bytecode):

    python compile_pyspark.py [SPARK_HOME]    # default: the PySpark of this Python
"""

from __future__ import annotations

import compileall
import importlib.util
import sys
import tempfile
import zipfile
from pathlib import Path
from py_compile import PycInvalidationMode


def compile_archive(archive: Path) -> int:
    """Compile the modules of `archive`, add the bytecode to it, and return the number of these files.

    Modules that cannot be compiled stay unchanged. The archive is replaced atomically: a process that starts at the
    same time finds the old or the new one.
    """
    with tempfile.TemporaryDirectory(dir=archive.parent) as place:
        modules, new = Path(place) / "modules", Path(place) / archive.name
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(modules)
        # "Unchecked", because times and sizes of files in an archive are not what bytecode is compared with elsewhere.
        compileall.compile_dir(
            modules,
            maxlevels=100,
            quiet=2,
            legacy=True,
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
            force=True,
            stripdir=str(modules),  # a traceback names the place in the archive, not this one
            prependdir=str(archive),
        )
        files = sorted(path for path in modules.rglob("*") if path.is_file())
        with zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED, strict_timestamps=False) as packed:
            for path in files:
                packed.write(path, path.relative_to(modules))
        new.chmod(archive.stat().st_mode)
        new.replace(archive)
    return sum(path.suffix == ".pyc" for path in files)


def spark_home() -> Path:
    """The directory of the Spark that belongs to this Python's PySpark."""
    found = importlib.util.find_spec("pyspark")
    if found is None or found.origin is None:
        raise SystemExit("this Python has no PySpark: name the Spark, compile_pyspark.py SPARK_HOME")
    return Path(found.origin).parent


def main() -> None:
    """Compile both archives, PySpark's and Py4J's."""
    home = Path(sys.argv[1]) if len(sys.argv) > 1 else spark_home()
    archives = sorted((home / "python" / "lib").glob("py*.zip"))
    if not archives:
        raise SystemExit(f"{home} is not a Spark installation: it has no python/lib/pyspark.zip")
    for archive in archives:
        print(f"{archive}: {compile_archive(archive)} modules compiled")


if __name__ == "__main__":
    main()
