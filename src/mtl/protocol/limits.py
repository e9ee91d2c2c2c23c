"""The pace of the protocol. Units as in `mtl.limits`, which has the bounds that packages share."""

from __future__ import annotations

RESEND_DELAY_S = 0.005
RESEND_DELAY_TOP_S = 1.0
"""Pause before contents that the broker pushed back (overload, a gap) are sent again; doubles up to the second one."""
