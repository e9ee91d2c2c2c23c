"""The names of the broker's sockets."""

from __future__ import annotations

from enum import StrEnum


class Port(StrEnum):
    """CONTROL: control requests, and all data commands if so configured. PACKED, PLAIN: commands of such leases."""

    CONTROL = "control"
    PACKED = "packed"
    PLAIN = "plain"
