"""The client's end of a data flow (MTL-54)."""

from __future__ import annotations

import zmq

from mtl.limits import MAX_FRAME, PLAIN_HWM
from mtl.net.endpoint import Curve
from mtl.net.limits import PACKED_HWM
from mtl.net.link import SocketLink


def dealer(endpoint: str, *, packed: bool, curve: Curve | None = None) -> SocketLink:
    """A DEALER that connects to `endpoint`. On `packed` flows bodies are views, and the queues are short."""
    hwm = PACKED_HWM if packed else PLAIN_HWM
    return SocketLink(zmq.DEALER, endpoint, hwm=hwm, max_frame=MAX_FRAME, view=packed, curve=curve)
