"""Put bytecode into the archives that Spark starts Python from, so that queries start sooner.

Every Python process of Spark (the reader of a Python source, an executor's workers) imports PySpark out of
SPARK_HOME/python/lib, whose archives have source only: each of them compiles PySpark again, for more than half a second
of processor time. Run this once where Spark was installed, best when an image is built, with the Python that Spark's
workers use (another version passes the bytecode over and is no worse off than before):

    python compile_pyspark.py [SPARK_HOME]    # without it, that of the PySpark that this Python imports
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
    """Compile the modules of `archive`, put the bytecode beside them, and return how many files that are.

    Modules that cannot be compiled stay as they are. The archive is replaced in one step: a process that
    starts meanwhile finds the old or the new one.
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
    """Where the PySpark that this Python imports has its Spark."""
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
