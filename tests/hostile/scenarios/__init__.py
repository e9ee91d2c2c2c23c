"""All scenarios, by the abused part; importing this package registers them."""

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
