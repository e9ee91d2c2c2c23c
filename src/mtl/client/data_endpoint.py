"""Computes the data endpoint of a lease."""

from __future__ import annotations

from mtl.errors import Malformed
from mtl.wire import control


def data_endpoint(control_endpoint: str, lease: control.DataLease) -> str:
    """The endpoint in the lease, or the lease's port on the host of the control endpoint; the control endpoint itself
    if the broker has one socket, since a tunnel may have another port at this end. Raises `Malformed`.
    """
    if lease.shared_socket:
        return control_endpoint
    if lease.endpoint is not None:
        return lease.endpoint
    if control_endpoint.startswith("tcp://"):
        return f"{control_endpoint.rpartition(':')[0]}:{lease.port}"
    raise Malformed(f"a lease names port {lease.port}, but {control_endpoint} has no host")
