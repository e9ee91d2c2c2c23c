"""The client's end of a control flow (MTL-13). A REQ that waits for a reply cannot send again, so a REQ without a reply
is closed and replaced: the Lazy Pirate pattern of the ZeroMQ guide (PROTOCOL.md 2).
"""

from __future__ import annotations

import zmq

from mtl.limits import MAX_CONTROL_FRAME
from mtl.net.endpoint import Curve
from mtl.net.link import SocketLink


def req(endpoint: str, curve: Curve | None = None) -> SocketLink:
    """A REQ that connects to `endpoint`."""
    return SocketLink(zmq.REQ, endpoint, hwm=4, max_frame=MAX_CONTROL_FRAME, view=False, curve=curve)
