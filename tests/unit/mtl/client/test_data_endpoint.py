from __future__ import annotations

import pytest

from mtl.client.data_endpoint import data_endpoint
from mtl.errors import Malformed
from mtl.wire import control

LEASE = control.DataLease(port=7000, lease="x")


def test_the_endpoint_of_the_data_flow() -> None:
    assert data_endpoint("tcp://[::1]:5975", LEASE) == "tcp://[::1]:7000"
    elsewhere = control.DataLease(port=0, lease="x", endpoint="ipc:///run/data")
    assert data_endpoint("ipc:///run/control", elsewhere) == "ipc:///run/data"
    tunnelled = control.DataLease(port=7000, lease="x", shared_socket=True)
    assert data_endpoint("tcp://localhost:9999", tunnelled) == "tcp://localhost:9999"
    assert data_endpoint("ipc:///run/other-name", tunnelled) == "ipc:///run/other-name"
    with pytest.raises(Malformed):
        data_endpoint("ipc:///run/control", LEASE)
