"""Configuration of a door: the table `[doors.<name>]` in broker.toml."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec

from mtl.client.settings import Settings
from mtl.doors.addresses import TRANSPORTS, ListenAddress, listen_address
from mtl.doors.limits import DOOR_SESSIONS, MBWS_PEERS
from mtl.doors.peers import PeerConfig
from mtl.doors.pools import DoorQuota, shares_of
from mtl.errors import OptionError
from mtl.net.exposure import check_exposure
from mtl.net.ipc import SocketMode


class DoorConfig(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True, kw_only=True):
    """One door. `listen` is its address, [TRANSPORT://]HOST:PORT (see `addresses`); port 0 is any free port.

    `create` are patterns of resource names that are created on a peer's request; by default a missing one is an error.
    """

    listen: str | None = None
    create: tuple[str, ...] = ()
    curve_key_file: str | None = None
    """The private file of the CURVE keys that the door shows its peers. For protocols on ZeroMQ."""
    peer_keys: dict[str, tuple[str, ...]] = {}
    """Broker user to the CURVE public keys, or their files, of the peers that log in as this user. If it is given, only
    these peers are admitted. For protocols on ZeroMQ.
    """
    certificate_file: str | None = None
    key_file: str | None = None
    """The certificate chain and the private key of TLS, as PEM. For protocols on TCP or WebSocket."""
    client_authority_file: str | None = None
    """Mutual TLS: authorities, as PEM, whose client certificates are accepted. The common name is the user."""
    basic: bool = False
    """Whether peers log in by HTTP Basic, with a user of the broker and its password. For WebSocket."""
    tokens_file: str | None = None
    """A private file with a line `USER TOKEN` for each bearer token that is accepted. For WebSocket."""
    insecure: bool = False
    """Whether the door may listen beyond this machine without authentication or without encryption."""
    origins: tuple[str, ...] = ()
    """Origins whose pages may use the door in addition to its own page, as in the header `Origin`
    ("https://example.org"); "*" is any. For WebSocket."""
    page: bool = False
    """Whether the door serves a test page for browsers at `/`. For WebSocket."""
    peers: Annotated[dict[str, PeerConfig], msgspec.Meta(max_length=MBWS_PEERS)] = {}
    """mbws: other brokers that contents are sent to. The keys are local names of these brokers."""
    max_sessions: int = DOOR_SESSIONS
    quotas: dict[DoorQuota, int] = {}
    """The shares of a user in what all peers use together; a quarter each by default, three quarters at most."""
    socket_mode: SocketMode = "600"
    """The mode of the socket file of an ipc:// address, as of the broker's."""

    def __post_init__(self) -> None:
        """Check the rules that types cannot express."""
        if self.max_sessions < 1:
            raise OptionError("max-sessions has to be above 0")
        try:
            shares_of(self.quotas, self.max_sessions)
        except ValueError as error:
            raise OptionError(str(error)) from error
        if (self.certificate_file is None) != (self.key_file is None):
            raise OptionError("certificate-file and key-file belong together")
        if self.client_authority_file is not None and self.certificate_file is None:
            raise OptionError(
                "client-authority-file needs certificate-file and key-file, because it is a part of TLS"
            )
        if self.peer_keys and self.curve_key_file is None:
            raise OptionError("peer-keys need curve-key-file: the door's own key")

    @property
    def authenticates(self) -> bool:
        """Whether peers have to authenticate."""
        return bool(self.client_authority_file or self.basic or self.tokens_file or self.peer_keys)

    @property
    def encrypts(self) -> bool:
        """Whether the transport is encrypted."""
        return bool(self.certificate_file or self.curve_key_file)

    def address(self, door: str) -> ListenAddress:
        """Where the door of this name listens. Raises `OptionError`."""
        return listen_address(door, self.listen, secure=self.certificate_file is not None)

    def check(self, door: str, broker: Settings) -> None:
        """Raises `OptionError` for options that the door of this name does not support, and for missing ones. `broker`
        are the settings of the door's own connection.
        """
        if door not in TRANSPORTS:
            raise OptionError(f"there is no door {door!r}; there are {', '.join(TRANSPORTS)}")
        address = self.address(door)
        usual = DoorConfig()
        for option in sorted(_SPECIAL - _meaningful(door, address)):
            if getattr(self, option) != getattr(usual, option):
                raise OptionError(
                    f"{option.replace('_', '-')} has no meaning for the door {door} at {address}; leave it out"
                )
        if self.authenticates and broker.user is None and broker.curve_key_file is None:
            raise OptionError(
                "peers come in as users of the broker, so the door needs a user of its own there, user with "
                "password-file or curve-client-key-file, that `mtl grant DOOR --act-as PATTERN` lets act as them"
            )
        if not self.insecure and not address.local:
            meaningful = _meaningful(door, address)
            check_exposure(
                str(address),
                None if self.authenticates else _listed(_AUTHENTICATING & meaningful),
                None if self.encrypts else _listed(_ENCRYPTING & meaningful),
            )


_ENCRYPTING = frozenset({"curve_key_file", "certificate_file"})
_AUTHENTICATING = frozenset({"peer_keys", "client_authority_file", "basic", "tokens_file"})
_ON_ZEROMQ = frozenset({"curve_key_file", "peer_keys"})
_ON_TCP = frozenset({"certificate_file", "key_file", "client_authority_file"})
_ON_WEBSOCKET = _ON_TCP | {"origins", "basic", "tokens_file"}
_ON_MBWS = frozenset({"page", "peers"})
_SPECIAL = _ON_ZEROMQ | _ON_WEBSOCKET | _ON_MBWS
"""Options that only some doors support."""


def _meaningful(door: str, address: ListenAddress) -> frozenset[str]:
    """The options of `_SPECIAL` that this door supports."""
    if door == "mc0":
        return _ON_ZEROMQ
    options = _ON_WEBSOCKET if address.transport == "ws" else _ON_TCP
    return options | _ON_MBWS if door == "mbws" else options


def _listed(options: frozenset[str]) -> str:
    return " or ".join(option.replace("_", "-") for option in sorted(options))


_BROKER = {
    "virtual-host": "virtual_host",
    "user": "user",
    "password-file": "password_file",
    "password-env": "password_env",
    "sasl-mechanism": "sasl_mechanism",
    "curve-server-key": "curve_server_key",
    "curve-client-key-file": "curve_key_file",
}
"""Members of a door's table for its own connection to the broker, and the settings that they are."""

_USUAL = Settings()


def parse(door: str, table: Mapping[str, Any], usual: Settings = _USUAL) -> tuple[DoorConfig, Settings]:
    """A door's table: the door's configuration, and the settings of its own connection to the broker, which are `usual`
    where the table has none. Raises `OptionError`.
    """
    login = {setting: table[member] for member, setting in _BROKER.items() if member in table}
    own = {member: value for member, value in table.items() if member not in _BROKER}
    if wrong := [member for member in _BROKER if not isinstance(table.get(member, ""), str)]:
        raise OptionError(f"{wrong[0]} has to be a text")
    broker = replace(usual, **login)
    try:
        config = msgspec.convert(own, DoorConfig)
    except msgspec.ValidationError as error:
        raise OptionError(str(error)) from error
    config.check(door, broker)
    return config, broker


def load(path: Path | None) -> dict[str, dict[str, Any]]:
    """The tables of the doors in a broker's configuration, by door; `parse` accepts each. Raises `OptionError` with the
    error and its place.
    """
    if path is None:
        return {}
    tables = read_tables(path)
    for door, table in tables.items():
        try:
            parse(door, table)
        except OptionError as error:
            raise OptionError(f"{path}: [doors.{door}]: {error}") from error
    return tables


def read_tables(path: Path) -> dict[str, dict[str, Any]]:
    """The tables of the doors in a file, by door, not checked. Raises `OptionError`."""
    try:
        return msgspec.toml.decode(path.read_bytes(), type=_File).doors
    except OSError as error:
        raise OptionError(f"cannot read {path}: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise OptionError(f"{path}: {error}") from error


class _File(msgspec.Struct, frozen=True):
    """The part of broker.toml about doors."""

    doors: dict[str, dict[str, Any]] = {}
