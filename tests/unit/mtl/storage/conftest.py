"""Some tests of the storage need a whole broker."""

from __future__ import annotations

from tests.unit.mtl.broker.conftest import client, rig

__all__ = ["client", "rig"]
