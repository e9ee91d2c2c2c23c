"""Contents of one resource that a door publishes together: one unit for the broker, and one answer for all."""

from __future__ import annotations

from mtl.doors.limits import DOOR_RUN_CONTENTS, DOOR_RUN_OCTETS


class ContentRun:
    """`bodies`, and for each its properties, encoded (`encode_properties`). `octets` is the size of both."""

    __slots__ = ("bodies", "octets", "resource", "tables")

    def __init__(self, resource: str) -> None:
        self.resource = resource
        self.bodies: list[bytes] = []
        self.tables: list[bytes] = []
        self.octets = 0

    def add(self, body: bytes, table: bytes) -> None:
        """Add one content. The caller checks `fits` before."""
        self.bodies.append(body)
        self.tables.append(table)
        self.octets += len(body) + len(table)

    def fits(self, body: bytes, table: bytes) -> bool:
        """Whether one more content may be added; the first may have any size."""
        octets = self.octets + len(body) + len(table)
        return not self.bodies or (len(self.bodies) < DOOR_RUN_CONTENTS and octets <= DOOR_RUN_OCTETS)
