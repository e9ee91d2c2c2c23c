"""The bounds of the engines. Units as in `mtl.limits`, which has the bounds that packages share."""

from __future__ import annotations

ADOPT_OCTETS = 8 << 20
"""A stage's log from this size on is adopted by rename. Copying smaller ones avoids thousands of files an hour."""

READ_THREADS = 8
"""Reads of a data directory at a time: so many readers of slow or failing places before one delays another. A disk
with a longer queue gains little."""
