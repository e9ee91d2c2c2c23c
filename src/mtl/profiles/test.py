"""The "test" profile, exactly as RFC 11 defines it (MTL-114 to 117)."""

from __future__ import annotations

from mtl.profiles.base import Profile

RESOURCE = "resource"
"""The only resource (MTL-114)."""

TEST = Profile(
    name="test",
    confirms=frozenset({"none"}),
    any_reader=True,
    durable=False,
    fixed_resources=(RESOURCE,),
)
