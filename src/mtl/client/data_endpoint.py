"""Where the data flow of a lease is."""

from __future__ import annotations

from mtl.errors import Malformed
from mtl.wire import control as w


def data_endpoint(control: str, lease: w.DataLease) -> str:
    """The port of the host that was asked, or the endpoint that the broker names. Raises `Malformed`."""
    if lease.endpoint is not None:
        return lease.endpoint
    if control.startswith("tcp://"):
        return f"{control.rpartition(':')[0]}:{lease.port}"
    raise Malformed(f"a lease names port {lease.port}, but {control} has no host")
