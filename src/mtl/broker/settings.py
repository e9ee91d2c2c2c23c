"""The core's part of the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mtl import limits
from mtl.broker import limits as broker_limits
from mtl.broker.access.authentication import AuthenticationSettings
from mtl.broker.access.quotas import QuotaSettings
from mtl.broker.commands.granting import Ports
from mtl.broker.commands.granting_readers import LocalReads
from mtl.broker.commands.granting_writers import LocalWrites
from mtl.net.ports import Port


@dataclass(frozen=True, slots=True)
class Settings:
    """The core's part of the configuration. `boot` identifies this run of the broker; `packs_on` is the socket for
    packed leases; the first virtual host is that of a client that names none; `auto_create` are patterns of the
    resources that a lease request may make; `low_watermark` is the least free space on the disk, in octets (`space`).
    With `local_reads` readers on this machine may get the places of packs, with `local_writes` writers may put packs
    into shared memory. `machine` identifies this boot of the machine; it is empty where the system has no such id.
    """

    boot: str
    ports: Ports
    packs_on: Port = Port.PACKED
    virtual_hosts: Sequence[str] = (limits.DEFAULT_VIRTUAL_HOST,)
    auto_create: Sequence[str] = ()
    authentication: AuthenticationSettings = field(default_factory=AuthenticationSettings)
    heartbeat_s: float = limits.HEARTBEAT_S
    lease_unbound_s: float = broker_limits.LEASE_UNBOUND_S
    segment_bytes: int = limits.SEGMENT_BYTES
    low_watermark: int = 0
    quotas: QuotaSettings = field(default_factory=QuotaSettings)
    local_reads: LocalReads | None = None
    local_writes: LocalWrites | None = None
    machine: str = ""
