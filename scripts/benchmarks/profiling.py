"""Placeholder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.bench import Bench


def main(bench: Bench, names: Sequence[str], out: Path) -> int:
    """Later."""
    return 0
