"""What the core has to know of the configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from mtl import limits
from mtl.broker.access.authentication import AuthenticationSettings
from mtl.broker.access.quotas import QuotaSettings
from mtl.broker.commands.granting import Ports
from mtl.broker.commands.granting_readers import LocalReads
from mtl.broker.commands.granting_writers import LocalWrites
from mtl.net.ports import Port


@dataclass(frozen=True, slots=True)
class Settings:
    """What the core has to know of the configuration. `boot` names this run of the broker; `packs_on` is the socket
    that packed leases bind on; the first virtual host is where a client is that names none; `auto_create` are patterns
    of resources that a lease request makes; `low_watermark` is what is to stay free on the disk (`space`). With
    `local_reads` readers on this machine may be told where packs lie, with `local_writes` writers may put them into
    memory. `machine` tells this boot of the machine from others; empty where nothing tells.
    """

    boot: str
    ports: Ports
    packs_on: Port = Port.PACKED
    virtual_hosts: Sequence[str] = (limits.DEFAULT_VIRTUAL_HOST,)
    auto_create: Sequence[str] = ()
    authentication: AuthenticationSettings = field(default_factory=AuthenticationSettings)
    heartbeat_s: float = limits.HEARTBEAT_S
    lease_unbound_s: float = limits.LEASE_UNBOUND_S
    segment_bytes: int = limits.SEGMENT_BYTES
    low_watermark: int = 0
    quotas: QuotaSettings = field(default_factory=QuotaSettings)
    local_reads: LocalReads | None = None
    local_writes: LocalWrites | None = None
    machine: str = ""
