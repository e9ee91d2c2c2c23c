"""The names of the broker's sockets."""

from __future__ import annotations

from enum import StrEnum


class Port(StrEnum):
    """Control requests, data commands of packed leases, data commands of plain ones."""

    CONTROL = "control"
    PACKED = "packed"
    PLAIN = "plain"
