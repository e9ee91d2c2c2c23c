"""Runs the notebooks, and compares the results with the stored ones.

The text of a cell has to be identical, unless the cell has the tag `varies`: times, rates, sizes on the disk. Pictures
are not compared.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"

VARIES = "varies"
"""The tag of a cell whose result varies."""

PATIENCE_S = 300
"""The timeout of one cell; the longest one mainly starts Spark."""


def names() -> list[str]:
    """The names of all notebooks."""
    return sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))


def path_of(name: str) -> Path:
    """A notebook's file."""
    return NOTEBOOKS / f"{name}.ipynb"


def stored(name: str) -> NotebookNode:
    """The stored notebook."""
    found: NotebookNode = nbformat.read(path_of(name), as_version=nbformat.NO_CONVERT)
    return found


def executed(name: str) -> NotebookNode:
    """The notebook after a run in a new kernel, tidied. CellExecutionError if a cell fails."""
    notebook = stored(name)
    client = NotebookClient(
        notebook,
        timeout=PATIENCE_S,
        kernel_name="python3",
        record_timing=False,  # the time of a cell differs in each run
        resources={"metadata": {"path": str(NOTEBOOKS)}},
    )
    client.execute()
    notebook.metadata.language_info = {"name": "python"}  # the version of Python may differ
    for cell in _code(notebook):
        # Messages of Spark and Java about this machine; an error of a cell is not a stream.
        cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
    return notebook


def differences(before: NotebookNode, after: NotebookNode) -> list[str]:
    """The differences between two runs of one notebook, one line for each cell."""
    return [
        f"cell {old.execution_count}: stored {_text(old)!r}, came out {_text(new)!r}"
        for old, new in zip(_code(before), _code(after), strict=True)
        if VARIES not in old.metadata.get("tags", ()) and _text(old) != _text(new)
    ]


def _code(notebook: NotebookNode) -> Iterator[NotebookNode]:
    return (cell for cell in notebook.cells if cell.cell_type == "code")


def _text(cell: NotebookNode) -> str:
    return "".join(
        output.text if output.output_type == "stream" else output.data.get("text/plain", "")
        for output in cell.outputs
    )


def main() -> int:
    """Returns 0 if every notebook runs with the stored results."""
    parser = argparse.ArgumentParser(prog="scripts/notebooks", description=__doc__)
    parser.add_argument("--write", action="store_true", help="store the results")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names())} (default: all)")
    options = parser.parse_args()
    unknown = set(options.names) - set(names())
    if unknown:
        parser.error(f"unknown notebooks: {', '.join(sorted(unknown))}; known are {', '.join(names())}")
    failed = False
    for name in options.names or names():
        began = time.monotonic()
        try:
            fresh = executed(name)
        except CellExecutionError as error:
            print(f"{name}: a cell failed:\n{error}")
            failed = True
            continue
        if options.write:
            nbformat.write(fresh, path_of(name))
            found = []
        else:
            found = differences(stored(name), fresh)
        print(f"{name}: ran in {time.monotonic() - began:.0f} s", *found, sep="\n  ")
        failed = failed or bool(found)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
