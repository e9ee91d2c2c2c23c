"""All scenarios, by the abused part; importing this package registers them."""

from tests.hostile.scenarios import (
    applications,
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
    "applications",
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
