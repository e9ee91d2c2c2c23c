from __future__ import annotations

import errno
import os
import socket
import stat
import threading
from pathlib import Path

import pytest
import zmq

from mtl.net.ipc import admit, claimed
from mtl.net.router import BindFailed, RouterSocket


def bind(endpoint: str) -> RouterSocket:
    return RouterSocket(zmq.Context.instance(), endpoint, hwm=10, max_frame=100)


def test_an_endpoint_with_a_live_server_is_refused_and_stays_reachable(tmp_path: Path) -> None:
    endpoint = f"ipc://{tmp_path}/socket"
    first = bind(endpoint)
    try:
        with pytest.raises(BindFailed, match="another server listens there"):
            bind(endpoint)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"{tmp_path}/socket")
    finally:
        first.close()


def test_the_file_of_a_dead_server_is_replaced(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(f"{tmp_path}/socket")
        dead.listen()
    assert (tmp_path / "socket").is_socket()
    bind(f"ipc://{tmp_path}/socket").close()


def test_a_server_with_a_full_queue_is_a_live_one(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(f"{tmp_path}/socket")
        busy.listen(0)
        waiting.connect(f"{tmp_path}/socket")
        with pytest.raises(BindFailed, match="another server"):
            bind(f"ipc://{tmp_path}/socket")


def test_a_file_that_is_no_socket_is_kept(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("data")
    with pytest.raises(BindFailed, match="not a socket"):
        bind(f"ipc://{tmp_path}/precious")
    assert (tmp_path / "precious").read_text() == "data"


def test_one_of_two_servers_that_start_together_is_refused(tmp_path: Path) -> None:
    endpoint, bound, failed = f"ipc://{tmp_path}/socket", list[RouterSocket](), list[BindFailed]()
    together = threading.Barrier(4)

    def start() -> None:
        together.wait()
        try:
            bound.append(bind(endpoint))
        except BindFailed as error:
            failed.append(error)

    threads = [threading.Thread(target=start) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for router in bound:
        router.close()
    assert (len(bound), len(failed)) == (1, 3)


@pytest.mark.parametrize(
    "endpoint", ["tcp://127.0.0.1:1", "ipc://*", "ipc://@abstract", "ipc:///no/such/folder/x"]
)
def test_other_endpoints_need_no_claim(endpoint: str) -> None:
    with claimed(endpoint):
        pass


def test_the_error_is_that_of_an_address_in_use(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as live:
        live.bind(f"{tmp_path}/socket")
        live.listen()
        with pytest.raises(OSError, match="listens") as caught, claimed(f"ipc://{tmp_path}/socket"):
            pass
    assert caught.value.errno == errno.EADDRINUSE


def test_only_the_user_connects_unless_a_mode_is_given(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        router = bind(f"ipc://{tmp_path}/socket")
        assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o600
        assert os.umask(0o022) == 0o022
        admit(router.endpoint, "660")
        assert stat.S_IMODE((tmp_path / "socket").stat().st_mode) == 0o660
        router.close()
    finally:
        os.umask(before)
    admit("tcp://127.0.0.1:1", "660")
