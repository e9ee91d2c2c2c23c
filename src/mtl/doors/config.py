"""What a door can be told: `[doors.<name>]` in broker.toml, or options of `mtl door`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mtl.doors.limits import DOOR_SESSIONS
from mtl.errors import OptionError


class DoorConfig(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True, kw_only=True):
    """One door. `listen` is where: its form is the protocol's, its default too; port 0 is any free one.

    `create` are patterns of resource names that are made when a peer asks for them; none: unknown ones are errors.
    """

    listen: str | None = None
    create: tuple[str, ...] = ("*",)
    virtual_host: str | None = None
    user: str | None = None
    password_file: str | None = None
    password_env: str | None = None
    sasl_mechanism: str | None = None
    curve_server_key: str | None = None
    curve_client_key_file: str | None = None
    """How the door comes in at the broker, as `mtl.connect` is told: whose name and password, the broker's public CURVE
    key or its file, and a private file of the door's own by which the broker may know it without a password.
    """
    curve_key_file: str | None = None
    """The private file of the CURVE keys that the door shows its peers, where its protocol runs on ZeroMQ."""
    certificate_file: str | None = None
    key_file: str | None = None
    """The chain of certificates and the private key of TLS, as PEM, where the protocol runs on TCP or WebSocket."""
    origins: tuple[str, ...] = ()
    """Origins whose pages may use the door besides those that it serves itself, as browsers say them
    ("https://example.org"); "*" is any. For WebSocket."""
    page: bool = False
    """Whether a browser finds a page to try the door with at `/`. For WebSocket."""
    max_sessions: int = DOOR_SESSIONS

    def __post_init__(self) -> None:
        """Check what a type cannot say."""
        if self.max_sessions < 1:
            raise OptionError("max-sessions has to be above 0")
        if (self.certificate_file is None) != (self.key_file is None):
            raise OptionError("certificate-file and key-file belong together")


class _File(msgspec.Struct, frozen=True):
    """The part of broker.toml that is the doors'."""

    doors: dict[str, DoorConfig] = {}


def load(path: Path | None) -> dict[str, DoorConfig]:
    """The doors that a broker's configuration names. Raises `OptionError` naming what is wrong."""
    if path is None:
        return {}
    try:
        return msgspec.toml.decode(path.read_bytes(), type=_File).doors
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise OptionError(f"{path}: {error}") from error


def host_and_port(listen: str) -> tuple[str, int]:
    """HOST:PORT, [HOST]:PORT for IPv6. Raises `OptionError` for anything else."""
    host, colon, port = listen.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise OptionError(f"{listen!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)
