"""The minimal server of the RFC with one defect each, and the requirement that the defect violates."""

from __future__ import annotations

from typing import Any

from tests.support.minimal_server import MinimalServer


class NumberlessResponses(MinimalServer):
    """Every Response has the number 0."""

    def respond(self, peer: bytes, header: bytes, code: bytes) -> None:
        super().respond(peer, header[:1] + bytes(8), code)


class ContentsAfterDismiss(MinimalServer):
    """A reader that has dismissed its resource is sent one more content."""

    def respond(self, peer: bytes, header: bytes, code: bytes) -> None:
        super().respond(peer, header, code)
        if header[0] == 4 and code == b"200":
            self.deliver(peer, 99, "resource", b"", b"late")


class RepeatedDismiss(MinimalServer):
    """Accepts a repeated Dismiss of a resource."""

    def __init__(self) -> None:
        super().__init__()
        self._before: set[tuple[bytes, bytes]] = set()

    def respond(self, peer: bytes, header: bytes, code: bytes) -> None:
        flow = (peer, header[10:])
        if header[0] == 3 and code == b"200":
            self._before.add(flow)
        super().respond(peer, header, b"200" if header[0] == 4 and flow in self._before else code)


class CaseSensitiveProfiles(MinimalServer):
    """Accepts `test` but not `TEST`."""

    def decide(self, peer: bytes, name: str, body: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
        if name == "connection.profile" and body.get("profile") not in self.profiles:
            return b"400", {"status": "Bad Request"}
        return super().decide(peer, name, body)


class AnyConfirmation(MinimalServer):
    """Grants readers a confirmation model that it does not implement."""

    def lease(self, profile: str, name: str, body: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
        return super().lease(
            profile, name, {**body, "confirm": "none"} if name == "connection.reader" else body
        )


class LastReaderOnly(MinimalServer):
    """Sends a content to one reader instead of all."""

    def fan_out(self, name: str, table: bytes, body: bytes) -> None:
        for peer in self.readers(name)[-1:]:
            self.deliver(peer, 1, name, table, body)


class DroppedProperties(MinimalServer):
    """Delivers contents without their properties."""

    def fan_out(self, name: str, table: bytes, body: bytes) -> None:
        super().fan_out(name, bytes(4), body)


class OneProperty(MinimalServer):
    """Delivers a content with the first of its properties."""

    def fan_out(self, name: str, table: bytes, body: bytes) -> None:
        super().fan_out(name, table[:3] + b"\x07" + table[4:11] if len(table) > 11 else table, body)


class ShortBodies(MinimalServer):
    """Cuts bodies after 64 KiB."""

    def fan_out(self, name: str, table: bytes, body: bytes) -> None:
        super().fan_out(name, table, body[: 1 << 16])


DEFECTS: dict[type[MinimalServer], str] = {
    NumberlessResponses: "MTL-62",
    RepeatedDismiss: "MTL-75",
    ContentsAfterDismiss: "MTL-82",
    CaseSensitiveProfiles: "MTL-39",
    AnyConfirmation: "MTL-49",
    LastReaderOnly: "MTL-116",
    DroppedProperties: "MTL-80",
    OneProperty: "MTL-80",
    ShortBodies: "MTL-80",
}
