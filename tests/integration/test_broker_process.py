"""The broker as a separate process, used by the minimal client: start, stop, kill, durable state.

Only the bodies of packs are encoded and decoded with the project's code. RFC 11 with the minimal client is in minimal/,
the project's client in test_client_*.py.
"""

from __future__ import annotations

import signal
import socket
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from mtl.log import limits as log_limits
from mtl.storage.database import VERSION
from mtl.testing import RunningBroker, broker
from mtl.wire.packs import decode_pack, encode_pack, unpack
from tests.support.minimal_client import minimal_client, short
from tests.support.processes import killed_after

MIB = 1 << 20


def count(contents: int) -> bytes:
    """The properties of a pack as octets: {"mtl-count": contents}."""
    entry = short("mtl-count") + b"l" + struct.pack(">q", contents)
    return struct.pack(">I", len(entry)) + entry


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for the tests that leave it unchanged."""
    with broker(tmp_path_factory.mktemp("shared") / "data") as running:
        yield running


# --- plain and packed ---------------------------------------------------------------------------------------


def test_plain_and_packed_contents_are_read_by_both_kinds_of_reader(
    shared: RunningBroker,
) -> None:
    with minimal_client(shared.endpoint) as client:
        client.ask("Resource.Create", resource="mixed")
        plain = client.lease("Writer", resources=["mixed"], confirm="full")
        packed = client.lease("Writer", resources=["mixed"], confirm="full", packed=True)
        expected = []
        for turn in range(5):
            plain.content(turn + 1, b"plain %d" % turn)
            assert plain.confirmed() == turn + 1
            bodies = [b"packed %d.%d" % (turn, n) for n in range(3)]
            packed.content(3 * turn + 1, bytes(encode_pack(bodies)), table=count(3))
            assert packed.confirmed() == 3 * turn + 3
            expected += [b"plain %d" % turn, *bodies]
        reader = client.lease("Reader", resources=["mixed"], confirm="full", **{"from": "earliest"})
        reader.summon("mixed")
        received = [reader.read() for _ in expected]
        assert [x[0] for x in received] == list(range(1, len(expected) + 1))
        assert [x[3] for x in received] == expected
        both = client.lease(
            "Reader", resources=["mixed"], confirm="full", packed=True, **{"from": "earliest"}
        )
        both.summon("mixed")
        unpacked: list[bytes] = []
        while len(unpacked) < len(expected):
            sequence, _, properties, body = both.read()
            assert sequence == len(unpacked) + 1
            contents = 3 if count(3)[4:] in properties else 1
            unpacked += [bytes(x) for _, x in unpack(decode_pack(body, contents))]
        assert unpacked == expected


# --- starting, stopping, dying ------------------------------------------------------------------------------


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `mtl broker` until it exits."""
    command = [sys.executable, "-m", "mtl.cli.main", "broker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_the_broker_prints_that_it_is_ready_and_exits_0_on_sigterm(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mtl.cli.main", "broker", "--endpoint", "tcp://127.0.0.1:0"]
    with killed_after(
        subprocess.Popen(
            [*command, "--data", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("mtl broker ready at tcp://127.0.0.1:")
        assert f"pid {process.pid}" in line
        with minimal_client(line.split()[4]) as client:
            assert client.ask("Resource.Create", resource="a")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stdout.read() == ""


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_every_confirmed_content_survives_a_kill(tmp_path: Path, how: str) -> None:
    """Killed during a stream: all confirmed contents are stored, followed by a prefix of the other sent ones."""
    with broker(tmp_path / "data") as running:
        with minimal_client(running.endpoint) as client:
            client.ask("Resource.Create", resource="a")
            writer = client.lease("Writer", resources=["a"], confirm="full")
            for number in range(1, 2_001):
                writer.content(number, b"%d" % number)
            confirmed = writer.confirmed()
            while confirmed < 300:
                confirmed = writer.confirmed()
            getattr(running, how)()
        running.restart()
        with minimal_client(running.endpoint) as client:
            code, described = client.ask("Resource.Describe", resource="a")
            stored = described["resources"][0]["next"] - 1
            assert (code, stored >= confirmed) == (200, True)
            reader = client.lease("Reader", resources=["a"], **{"from": "earliest"})
            reader.summon("a")
            received = [reader.read() for _ in range(stored)]
            assert [x[0] for x in received] == list(range(1, stored + 1))
            assert [x[3] for x in received] == [b"%d" % n for n in range(1, stored + 1)]


def one_line(finished: subprocess.CompletedProcess[str], *words: str) -> None:
    assert finished.returncode == 1, finished
    lines = finished.stderr.strip().splitlines()
    assert len(lines) == 1, finished.stderr
    assert lines[0].startswith("mtl: ")
    assert all(word in lines[0] for word in words), lines[0]


def test_a_directory_in_use_is_refused(shared: RunningBroker) -> None:
    finished = run("--endpoint", "tcp://127.0.0.1:0", "--data", str(shared.data))
    one_line(finished, "another broker", str(shared.pid), str(shared.data))


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        one_line(run("--endpoint", endpoint, "--data", str(tmp_path)), "cannot listen on", endpoint)


def test_data_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "broker.db")
    db.execute(f"PRAGMA user_version={VERSION + 1}")
    db.close()
    before = (tmp_path / "broker.db").read_bytes()
    one_line(run("--endpoint", "tcp://127.0.0.1:0", "--data", str(tmp_path)), f"format {VERSION + 1}")
    assert (tmp_path / "broker.db").read_bytes() == before


@pytest.mark.parametrize("endpoint", ["tcp://0.0.0.0:0", "tcp://*:0", "tcp://[::]:0"])
def test_a_public_endpoint_without_credentials_is_refused(tmp_path: Path, endpoint: str) -> None:
    one_line(run("--endpoint", endpoint, "--data", str(tmp_path / "data")), "insecure", endpoint)
    assert not (tmp_path / "data").exists()


def test_a_configuration_with_a_mistake_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text("endpiont = 'tcp://127.0.0.1:0'")
    one_line(run("--config", str(path)), str(path), "endpiont")
    one_line(run("--config", str(tmp_path / "nowhere.toml")), "cannot read")


def test_auto_create_from_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text('auto-create = ["auto-*"]')
    with broker(tmp_path / "data", path) as running, minimal_client(running.endpoint) as client:
        writer = client.lease("Writer", resources=["auto-1"], confirm="full")
        writer.content(1, b"x")
        assert writer.confirmed() == 1
        assert client.ask("Connection.Writer", resources=["other"])[0] == 404


# --- slow readers -------------------------------------------------------------------------------------------


def own_memory(pid: int) -> int:
    """Private octets of this process, without mapped segments, which the system can reclaim.

    0 if the system does not report it.
    """
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(int(x.split()[1]) * 1024 for x in lines if x.startswith("RssAnon"))


@pytest.mark.parametrize("packed", [False, True])
def test_memory_for_a_stuck_reader_is_bounded(tmp_path: Path, packed: bool) -> None:
    """300 MiB wait for a reader without confirmation that reads no contents; others are served meanwhile."""
    contents, chunks = 16, 300
    most = log_limits.TAIL_BYTES + 64 * MIB + 96 * MIB  # the newest bodies, the reader's queue, the rest
    bodies = [bytes([n]) * (MIB // contents) for n in range(contents)]
    with broker(tmp_path / "data") as running, minimal_client(running.endpoint) as client:
        client.ask("Resource.Create", resource="big", durability="os")
        slow = client.lease("Reader", resources=["big"], packed=packed, hwm=1, **{"from": "earliest"})
        slow.summon("big")
        writer = client.lease("Writer", resources=["big"], confirm="full", packed=True)
        pack = bytes(encode_pack(bodies))
        confirmed = 0
        for chunk in range(chunks):
            writer.content(chunk * contents + 1, pack, table=count(contents))
            if chunk >= 8:
                confirmed = max(confirmed, writer.confirmed())
        while confirmed < chunks * contents:
            confirmed = writer.confirmed()
        assert own_memory(running.pid) < most
        assert client.ask("Resource.Describe", resource="big")[1]["resources"][0]["next"] == confirmed + 1
        expected = 1
        while expected <= confirmed:
            sequence, _, _, body = slow.read()
            assert sequence == expected
            assert body == (pack if packed else bodies[(sequence - 1) % contents])
            expected += contents if packed else 1
        assert own_memory(running.pid) < most


def test_a_test_broker_does_not_outlive_a_killed_parent(tmp_path: Path) -> None:
    data = tmp_path / "data"
    parent = (
        f"import mtl.testing as t, os; b = t.broker({str(data)!r}); b.__enter__(); os.kill(os.getpid(), 9)"
    )
    assert (
        subprocess.run([sys.executable, "-c", parent], check=False, timeout=120).returncode == -signal.SIGKILL
    )
    # The lock is free when the broker has ended: the test waits for it.
    waiting = "import fcntl, os, sys; fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX)"
    subprocess.run([sys.executable, "-c", waiting, data], check=True, timeout=60)
    assert "stopped: " in (tmp_path / "data.log").read_text()  # and by itself, cleanly
