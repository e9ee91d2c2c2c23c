"""The broker's configuration: conf/broker.toml, with every member's default and meaning."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.broker.quotas.quotas import DEFAULTS, Quota, QuotaSettings, highest, total_of
from mtl.errors import OptionError
from mtl.net.exposure import check_exposure, is_local
from mtl.net.ipc import SocketMode
from mtl.net.open_connections import CONNECTIONS_OPEN
from mtl.net.pace import CONNECTION_BURST, CONNECTIONS_PER_S, Pace
from mtl.protocol.sasl.mechanisms import BY_STRENGTH, EXTERNAL, PLAIN, SCRAM, scram_available
from mtl.storage.memory import MEMORY_OCTETS

MEMORY = "memory:"
"""The value of `data` for a broker that keeps all data in its memory; the data ends with the broker."""

_HIGHEST_PORT = 65_535


class AuthenticationConfig(
    msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True, kw_only=True
):
    """[authentication]: how clients authenticate."""

    anonymous: bool | Literal["granted"] = True
    mechanisms: tuple[str, ...] = (EXTERNAL, SCRAM, PLAIN)
    plain_without_encryption: bool = False
    sessions_by_identity: bool = False
    attempts: int = broker_limits.AUTHENTICATION_ATTEMPTS

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        unknown = [name for name in self.mechanisms if name not in BY_STRENGTH]
        if unknown:
            raise OptionError(f"there is no mechanism {unknown[0]!r}; there is {', '.join(BY_STRENGTH)}")
        if self.attempts < 1:
            raise OptionError("attempts has to be above 0")


class CurveConfig(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True, kw_only=True):
    """[curve]: encryption; on when there is a key."""

    key_file: str = ""
    clients: Literal["any", "known"] = "any"


class LogConfig(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True, kw_only=True):
    """[log]: the lines on standard error, those of the audit log among them."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["text", "json"] = "text"


class QuotasConfig(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True, kw_only=True):
    """[quotas]: the quotas of every user, other ones for single `users`, and the connections of an address."""

    sessions: int = DEFAULTS[Quota.SESSIONS]
    leases: int = DEFAULTS[Quota.LEASES]
    leased_names: int = DEFAULTS[Quota.LEASED_NAMES]
    requests: int = DEFAULTS[Quota.REQUESTS]
    waits: int = DEFAULTS[Quota.WAITS]
    waiting_names: int = DEFAULTS[Quota.WAITING_NAMES]
    waiting_patterns: int = DEFAULTS[Quota.WAITING_PATTERNS]
    resources: int = DEFAULTS[Quota.RESOURCES]
    cursors: int = DEFAULTS[Quota.CURSORS]
    queues: int = DEFAULTS[Quota.QUEUES]
    applications: int = DEFAULTS[Quota.APPLICATIONS]
    writer_names: int = DEFAULTS[Quota.WRITER_NAMES]
    stages: int = DEFAULTS[Quota.STAGES]
    stage_bytes: int = DEFAULTS[Quota.STAGE_BYTES]
    stored_bytes: int = DEFAULTS[Quota.STORED_BYTES]
    unsent_bytes: int = DEFAULTS[Quota.UNSENT_BYTES]
    unsent_answer_bytes: int = DEFAULTS[Quota.UNSENT_ANSWER_BYTES]
    waiting_commands: int = DEFAULTS[Quota.WAITING_COMMANDS]
    fanout_bytes: int = DEFAULTS[Quota.FANOUT_BYTES]
    users: dict[str, dict[Quota, int]] = {}
    connections_at_once: int = CONNECTION_BURST
    connections_per_second: float = CONNECTIONS_PER_S
    connections_open: int = CONNECTIONS_OPEN

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        for where, quotas in [("quotas", self.of_every_user), *self.users.items()]:
            for quota, value in quotas.items():
                if value < 1:
                    raise OptionError(f"the quota {quota} of {where} has to be above 0")
                most = highest(quota)
                if most is not None and value > most:
                    raise OptionError(
                        f"the quota {quota} of {where} is {value}; it is at most {most}, because the rest of the "
                        f"broker's {total_of(quota)} is for the other users"
                    )
        if min(self.connections_at_once, self.connections_per_second, self.connections_open) <= 0:
            raise OptionError(
                "connections-at-once, connections-per-second and connections-open have to be above 0"
            )

    @property
    def of_every_user(self) -> dict[Quota, int]:
        """The quotas of every user."""
        return {quota: getattr(self, quota.replace("-", "_")) for quota in Quota}

    @property
    def settings(self) -> QuotaSettings:
        """The quotas as the core's settings."""
        return QuotaSettings(self.of_every_user, self.users)

    def pace(self, clock: Callable[[], float]) -> Pace:
        """The rate at which one address may open connections; `clock` is in monotonic seconds."""
        return Pace(clock, self.connections_at_once, self.connections_per_second)


class BrokerConfig(msgspec.Struct, frozen=True, rename="kebab", forbid_unknown_fields=True, kw_only=True):
    """The settings of `mtl broker`; conf/broker.toml describes each. Times are in seconds, sizes in octets."""

    endpoint: str = limits.DEFAULT_ENDPOINT
    data: str = "mtl-data"
    packed_port: int = 0
    plain_port: int = 0
    shared_socket: bool = False
    socket_mode: SocketMode = "600"
    virtual_hosts: tuple[str, ...] = (limits.DEFAULT_VIRTUAL_HOST,)
    auto_create: tuple[str, ...] = ()
    insecure: bool = False
    authentication: AuthenticationConfig = AuthenticationConfig()
    curve: CurveConfig = CurveConfig()
    log: LogConfig = LogConfig()
    quotas: QuotasConfig = QuotasConfig()
    heartbeat: float = limits.HEARTBEAT_S
    lease_unbound: float = broker_limits.LEASE_UNBOUND_S
    segment_bytes: int = limits.SEGMENT_BYTES
    low_watermark: int = 0
    memory_bytes: int = MEMORY_OCTETS
    local_reads: bool = True

    def __post_init__(self) -> None:
        """Check constraints that the types do not express."""
        if not self.endpoint.startswith(("tcp://", "ipc://")):
            raise OptionError(f"endpoint {self.endpoint!r} is neither tcp://HOST:PORT nor ipc://PATH")
        if not self.virtual_hosts:
            raise OptionError("virtual-hosts is empty; clients need at least one")
        if self.data.startswith(MEMORY) and not self.in_memory:
            raise OptionError(
                f'data = "{self.data}": nothing comes after {MEMORY}; memory-bytes sets its size, and a '
                f"directory of this name is ./{self.data}"
            )
        for name in ("heartbeat", "lease_unbound", "segment_bytes", "memory_bytes"):
            if getattr(self, name) <= 0:
                raise OptionError(f"{name.replace('_', '-')} has to be above 0")
        if self.low_watermark < 0:
            raise OptionError("low-watermark has to be a number of octets, or 0 for 1 GiB")
        for name in ("packed_port", "plain_port"):
            if not 0 <= getattr(self, name) <= _HIGHEST_PORT:
                raise OptionError(f"{name.replace('_', '-')} has to be a port, or 0 for any free one")
            if self.shared_socket and getattr(self, name):
                raise OptionError(
                    f"with shared-socket there is no {name.replace('_', '-')}; leave out one of them"
                )

    @property
    def in_memory(self) -> bool:
        """Whether all data is in memory and ends with the broker."""
        return self.data == MEMORY

    @property
    def protected(self) -> bool:
        """Whether only the two peers can read their messages."""
        return bool(self.curve.key_file) or self.endpoint.startswith("ipc://")

    def check_exposure(self) -> None:
        """Raises `OptionError` if clients could connect without credentials over the network, or intercept messages."""
        host = self.endpoint.removeprefix("tcp://").rpartition(":")[0]
        if self.insecure or self.endpoint.startswith("ipc://") or is_local(host):
            return
        check_exposure(
            self.endpoint,
            "anonymous in [authentication]" if self.authentication.anonymous is True else None,
            None if self.protected else "key-file in [curve] (`mtl keys` makes one)",
        )

    def check_logins(self) -> None:
        """Raises `OptionError` when no client could log in, for lack of a way to authenticate."""
        authentication = self.authentication
        if self.in_memory and (authentication.anonymous is not True or self.curve.clients == "known"):
            raise OptionError(
                f"no user could log in: a broker with data = {MEMORY} has no users: a data directory stores them; "
                "admit all clients (anonymous = true, clients = any), or set data to a directory"
            )
        with_key = EXTERNAL in authentication.mechanisms and self.curve.key_file
        readable = self.protected or authentication.plain_without_encryption
        with_password = SCRAM in authentication.mechanisms or (
            PLAIN in authentication.mechanisms and readable
        )
        if authentication.anonymous or with_key or (with_password and scram_available()):
            return
        if with_password:
            raise OptionError(
                "clients need a password, and checking it needs scramp: pip install 'pyspark-mtl[scram]'"
            )
        raise OptionError(
            "no user could log in: EXTERNAL needs key-file in [curve], PLAIN that or plain-without-encryption; "
            "add SCRAM-SHA-256 to mechanisms in [authentication]"
        )


def load(path: Path | None, *, log: Mapping[str, str] | None = None, **overrides: object) -> BrokerConfig:
    """The file's configuration, overridden by the command line; `log` are members of [log]. Raises `OptionError` with
    the faulty member.
    """
    members: dict[str, object] = {}
    if path is not None:
        try:
            members = msgspec.toml.decode(path.read_bytes(), type=dict[str, object])
        except OSError as e:
            raise OptionError(f"cannot read {path}: {e.strerror}") from e
        except msgspec.DecodeError as e:
            raise OptionError(f"{path} is not TOML: {e}") from e
    members.pop("doors", None)  # for the command line, which runs them with the broker
    members |= {name.replace("_", "-"): value for name, value in overrides.items() if value is not None}
    log_settings = members.get("log", {})
    if log and isinstance(log_settings, dict):
        members["log"] = log_settings | dict(log)
    try:
        return msgspec.convert(members, BrokerConfig)
    except msgspec.ValidationError as e:
        raise OptionError(f"{path or 'configuration'}: {e}") from e
