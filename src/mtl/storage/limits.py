"""The bounds of the engines. Units as in `mtl.limits`, which has the bounds that packages share."""

from __future__ import annotations

ADOPT_OCTETS = 8 << 20
"""A stage's log from this size on is adopted by rename. Copying smaller ones avoids thousands of files an hour."""
