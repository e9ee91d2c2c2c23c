"""What the broker makes of its storage is tested with a whole broker, too."""

from __future__ import annotations

from tests.unit.mtl.broker.conftest import client, rig

__all__ = ["client", "rig"]
