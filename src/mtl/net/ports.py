"""The names of the broker's sockets."""

from __future__ import annotations

from enum import StrEnum


class Port(StrEnum):
    """Control requests (and where that is configured all data commands), commands of packed leases, of plain ones."""

    CONTROL = "control"
    PACKED = "packed"
    PLAIN = "plain"
