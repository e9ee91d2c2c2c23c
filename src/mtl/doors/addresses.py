"""The address of a door: one syntax for all doors, [TRANSPORT://]HOST:PORT, and ipc://PATH for those on ZeroMQ."""

from __future__ import annotations

from typing import Final, NamedTuple

from mtl.errors import OptionError
from mtl.net.exposure import is_local

DEFAULTS: Final = {
    "mbws": "ws://127.0.0.1:5979",
    "mc0": "tcp://127.0.0.1:61616",
    "micromessage": "tcp://127.0.0.1:5978",
    "reactive": "tcp://127.0.0.1:5977",
}
"""Default port by door. 61616 is the port of the implementations that mc0's document describes (MC0-30). The others are
our choice: MBWS recommends TLS at 443 (MBWS-45), which the configuration can set; the other documents name no port."""

TRANSPORTS: Final = {
    "mbws": ("ws",),
    "mc0": ("tcp", "ipc"),
    "micromessage": ("tcp",),
    "reactive": ("tcp", "ws"),
}
"""The transports of each door; the first is the default. wss is ws with a certificate."""

_HIGHEST_PORT = 65_535
_PORT_DIGITS = 5


class ListenAddress(NamedTuple):
    """An address to listen at: `host` and `port` (0: any free one), or with ipc the path as `host`."""

    transport: str
    host: str
    port: int

    @property
    def local(self) -> bool:
        """Whether it is reachable from this machine only."""
        return self.transport == "ipc" or is_local(self.host)

    def __str__(self) -> str:
        """With its transport."""
        if self.transport == "ipc":
            return f"ipc://{self.host}"
        return f"{self.transport}://{f'[{self.host}]' if ':' in self.host else self.host}:{self.port}"


def listen_address(door: str, listen: str | None, *, secure: bool = False) -> ListenAddress:
    """Parse a door's `listen`; None is its default. `secure`: there is a certificate. Raises `OptionError`."""
    text = listen or DEFAULTS[door]
    transport, separator, rest = text.rpartition("://")
    if not separator:
        transport = TRANSPORTS[door][0]
    if (transport, secure) in {("wss", False), ("ws", True)} and listen is not None and separator:
        raise OptionError(
            f"listen {text!r}: it is wss:// with certificate-file and key-file, and ws:// without"
        )
    transport = "ws" if transport == "wss" else transport
    if transport not in TRANSPORTS[door]:
        raise OptionError(f"listen {text!r}: the door {door} listens on {', '.join(TRANSPORTS[door])}")
    if transport == "ipc":
        return ListenAddress(transport, rest, 0)
    try:
        return ListenAddress(transport, *host_and_port(rest))
    except OptionError as error:
        raise OptionError(
            f"listen {text!r} is not HOST:PORT, such as {DEFAULTS[door].partition('://')[2]}"
        ) from error


def host_and_port(text: str) -> tuple[str, int]:
    """HOST:PORT, [HOST]:PORT for IPv6; ports are below 65,536. Raises `OptionError` for anything else."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not (port.isascii() and port.isdecimal() and len(port) <= _PORT_DIGITS):
        raise OptionError(f"{text!r} is not HOST:PORT")
    if int(port) > _HIGHEST_PORT:
        raise OptionError(f"{text!r} is not HOST:PORT: ports end at {_HIGHEST_PORT}")
    return host.removeprefix("[").removesuffix("]"), int(port)
