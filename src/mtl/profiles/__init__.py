"""Profiles: the ways to use resources (RFC 11 "Selecting a Profile"; MTL-02, MTL-40). One file each, data only."""

from __future__ import annotations

from mtl.profiles.base import CommandClass, Profile
from mtl.profiles.log import LOG
from mtl.profiles.queue import QUEUE
from mtl.profiles.test import TEST

PROFILES: dict[str, Profile] = {profile.name: profile for profile in (TEST, LOG, QUEUE)}
"""Every profile by its name in lower case; names are case-insensitive (MTL-39)."""

__all__ = ["LOG", "PROFILES", "QUEUE", "TEST", "CommandClass", "Profile"]
