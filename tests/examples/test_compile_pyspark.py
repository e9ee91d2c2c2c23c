"""compile_pyspark.py, with small archives instead of those of PySpark."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import compile_pyspark
import pytest


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A Spark whose PySpark is one package of three modules; one of them is for another Python."""
    library = tmp_path / "python" / "lib"
    library.mkdir(parents=True)
    with zipfile.ZipFile(library / "pyspark.zip", "w") as archive:
        archive.writestr("pyspark/__init__.py", "")
        archive.writestr("pyspark/worker.py", "import sys\nplace = sys._getframe().f_code.co_filename\n")
        archive.writestr("pyspark/later.py", "this is no Python yet\n")
        archive.writestr("pyspark/data.json", "{}")
    with zipfile.ZipFile(library / "py4j-1-src.zip", "w") as archive:
        archive.writestr("py4j/__init__.py", "")
    return tmp_path


def imported(home: Path) -> str:
    """The file from which a new Python imports the worker, and the file name in its tracebacks."""
    code = "import pyspark.worker as w; print(w.__file__, w.place)"
    archive = home / "python" / "lib" / "pyspark.zip"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(archive)},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout.replace(str(archive), "").strip()


def test_python_finds_bytecode(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert imported(home) == "/pyspark/worker.py /pyspark/worker.py"
    monkeypatch.setattr(sys, "argv", ["compile_pyspark.py", str(home)])
    for _ in range(2):  # a second run has no effect
        compile_pyspark.main()
        assert imported(home) == "/pyspark/worker.pyc /pyspark/worker.py"
        printed = capsys.readouterr().out.splitlines()
        assert [line.partition(": ")[2] for line in printed] == ["1 modules compiled", "2 modules compiled"]
    with zipfile.ZipFile(home / "python" / "lib" / "pyspark.zip") as archive:
        assert {"pyspark/later.py", "pyspark/data.json"} < set(archive.namelist())
    assert sorted(path.name for path in (home / "python" / "lib").iterdir()) == [
        "py4j-1-src.zip",
        "pyspark.zip",
    ]


def test_the_installed_spark_is_found_and_other_directories_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (compile_pyspark.spark_home() / "jars").is_dir()
    monkeypatch.setattr(sys, "argv", ["compile_pyspark.py", str(tmp_path)])
    with pytest.raises(SystemExit, match=r"is not a Spark installation: it has no python/lib/pyspark\.zip"):
        compile_pyspark.main()
