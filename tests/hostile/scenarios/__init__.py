"""Every scenario, by what it abuses; importing this puts them into the table."""

from tests.hostile.scenarios import (
    connections,
    contents,
    control,
    cuts,
    doors,
    identities,
    leases,
    memory,
    quotas,
    resources,
    revocation,
    rights,
    room,
)

__all__ = [
    "connections",
    "contents",
    "control",
    "cuts",
    "doors",
    "identities",
    "leases",
    "memory",
    "quotas",
    "resources",
    "revocation",
    "rights",
    "room",
]
