"""Every notebook runs from top to bottom with its stored output: ./scripts/notebooks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import run_notebooks
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_notebook, new_output

from tests.support import java

HERE = re.compile(r"/(?:tmp|home|root|Users|srv|work)/")
"""Paths of the machine on which a notebook ran."""


@pytest.mark.spark
@pytest.mark.parametrize("name", run_notebooks.names())
def test_a_notebook_runs_with_its_stored_output(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(java.VARIABLE, java.options(tmp_path))  # the JVM is killed with its kernel
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    assert run_notebooks.differences(run_notebooks.stored(name), run_notebooks.executed(name)) == []


@pytest.mark.parametrize("name", run_notebooks.names())
def test_a_notebook_is_stored_from_a_new_kernel(name: str) -> None:
    cells = [cell for cell in run_notebooks.stored(name).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert not HERE.search(run_notebooks.path_of(name).read_text(encoding="utf-8"))


def notebook(text: str, *tags: str) -> NotebookNode:
    cell = new_code_cell("1", execution_count=1, metadata={"tags": list(tags)})
    cell.outputs = [new_output("stream", text=text), new_output("execute_result", {"text/plain": "1"})]
    found: NotebookNode = new_notebook(cells=[cell])
    return found


def test_a_cell_with_different_output_is_reported() -> None:
    (difference,) = run_notebooks.differences(notebook("one\n"), notebook("two\n"))
    assert difference == r"cell 1: stored 'one\n1', came out 'two\n1'"
    assert run_notebooks.differences(notebook("one\n"), notebook("one\n")) == []
    assert run_notebooks.differences(notebook("one\n", "varies"), notebook("two\n", "varies")) == []
