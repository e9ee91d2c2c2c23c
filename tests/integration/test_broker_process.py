"""The broker as a process of its own, spoken to with nothing but pyzmq and struct: what RFC 11 says, on the wire.

The client here has no extension members, no session token and none of our code; only the bodies of packs are made and
read with it. What our own client makes of the broker is in test_client_*.py.
"""

from __future__ import annotations

import json
import signal
import socket
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import zmq

from mtl import limits
from mtl.broker.store import VERSION
from mtl.testing import RunningBroker, broker
from mtl.wire.packs import decode_pack, encode_pack, unpack

PATIENCE_MS = 20_000
EMPTY = b"\0\0\0\0"
MIB = 1 << 20


class Raw:
    """A REQ to the broker, and as many DEALERs as asked for."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.context = zmq.Context()
        self.req = self._socket(zmq.REQ)
        self.req.connect(endpoint)

    def _socket(self, kind: int, hwm: int = 1_000) -> zmq.Socket[bytes]:
        made = self.context.socket(kind)
        made.setsockopt(zmq.LINGER, 0)
        made.setsockopt(zmq.RCVTIMEO, PATIENCE_MS)
        made.setsockopt(zmq.SNDTIMEO, PATIENCE_MS)
        made.setsockopt(zmq.RCVHWM, hwm)
        return made

    def ask(self, name: str, **body: Any) -> tuple[int, dict[str, Any]]:
        self.req.send_multipart([name.encode(), json.dumps(body).encode()])
        code, text = self.req.recv_multipart()
        return int(code), json.loads(text)

    def open(self, profile: str) -> None:
        code, ready = self.ask("Connection.Open", protocol={"name": "MTL", "version": 1})
        assert code == 201
        assert profile in ready["profiles"]
        assert self.ask("Connection.Profile", profile=profile)[0] == 200

    def lease(self, kind: str, **body: Any) -> Flow:
        """Ask for a lease and present it on a connection of its own."""
        hwm = body.pop("hwm", 1_000)
        code, lease = self.ask(f"Connection.{kind}", **body)
        assert code == 202, lease
        dealer = self._socket(zmq.DEALER, hwm)
        host = self.endpoint.rpartition(":")[0]
        dealer.connect(f"{host}:{lease['port']}")
        flow = Flow(dealer)
        flow.send(b"\x01", 1, short(lease["lease"]))
        assert flow.receive() == (b"\x02" + u64(1), b"200")
        return flow

    def close(self) -> None:
        self.context.destroy(linger=0)


class Flow:
    """A DEALER with a lease; frames as RFC 11 draws them."""

    def __init__(self, dealer: zmq.Socket[bytes]) -> None:
        self.dealer = dealer

    def send(self, kind: bytes, sequence: int, fields: bytes = b"", body: bytes = b"") -> None:
        self.dealer.send_multipart([kind + u64(sequence) + fields, body])

    def content(self, sequence: int, body: bytes, resource: str = "", table: bytes = EMPTY) -> None:
        self.send(b"\x05", sequence, short(resource) + table, body)

    def receive(self) -> tuple[bytes, bytes]:
        """The next command that is no Ping; a Ping is answered."""
        while True:
            header, body = self.dealer.recv_multipart()
            if header != b"\x08":
                return header, body
            self.dealer.send_multipart([b"\x09", b""])

    def summon(self, resource: str) -> None:
        self.send(b"\x03", 2, short(resource))
        assert self.receive() == (b"\x02" + u64(2), b"200")

    def read(self) -> tuple[int, str, bytes, bytes]:
        """The next Content: sequence, resource, properties, body."""
        header, body = self.receive()
        assert header[:1] == b"\x05", header
        (sequence,) = struct.unpack_from(">Q", header, 1)
        end = 10 + header[9]
        return sequence, header[10:end].decode(), header[end:], body

    def confirmed(self) -> int:
        """The sequence of the next Confirm(multiple)."""
        header, _ = self.receive()
        assert (header[:1], header[9:]) == (b"\x06", b"\x01"), header
        (sequence,) = struct.unpack(">Q", header[1:9])
        assert isinstance(sequence, int)
        return sequence


def u64(number: int) -> bytes:
    return struct.pack(">Q", number)


def short(text: str) -> bytes:
    raw = text.encode()
    return bytes([len(raw)]) + raw


def count(contents: int) -> bytes:
    """The properties of a pack, spelt out: {"mtl-count": contents}."""
    entry = short("mtl-count") + b"l" + struct.pack(">q", contents)
    return struct.pack(">I", len(entry)) + entry


@contextmanager
def raw(endpoint: str, profile: str = "log") -> Iterator[Raw]:
    client = Raw(endpoint)
    try:
        client.open(profile)
        yield client
    finally:
        client.close()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    """One broker for the tests that leave it as it was."""
    with broker(tmp_path_factory.mktemp("shared") / "data") as running:
        yield running


# --- RFC 11, and nothing else -------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-01", "MTL-03", "MTL-11", "MTL-12", "MTL-13", "MTL-53", "MTL-54", "MTL-57")
def test_an_rfc_client_in_the_test_profile(shared: RunningBroker) -> None:
    with raw(shared.endpoint, "test") as client:
        readers = [client.lease("Reader", resources=["resource"], confirm="none") for _ in range(2)]
        for reader in readers:
            reader.summon("resource")
        writer = client.lease("Writer", resources=["resource"], confirm="none")
        for number in range(1, 101):
            writer.content(number, b"%d" % number)
        for reader in readers:
            got = [reader.read() for _ in range(100)]
            assert [x[0] for x in got] == list(range(1, 101))
            assert [x[3] for x in got] == [b"%d" % n for n in range(1, 101)]
            assert {(x[1], x[2]) for x in got} == {("resource", EMPTY)}
        assert client.ask("Connection.Reader", resources=["resource"], confirm="full")[0] == 501


def test_an_rfc_client_in_the_log_profile(shared: RunningBroker) -> None:
    with raw(shared.endpoint) as client:
        assert client.ask("Resource.Create", resource="rfc")[0] == 200
        reader = client.lease("Reader", resources=["rfc"], confirm="full")
        reader.summon("rfc")
        writer = client.lease("Writer", resources=["rfc"], confirm="full")
        table = struct.pack(">I", 12) + b"\x03fooS" + struct.pack(">I", 3) + b"bar"
        for number in range(1, 11):
            writer.content(number, b"%d" % number, table=table)
        while writer.confirmed() < 10:
            pass
        for number in range(1, 11):
            sequence, resource, properties, body = reader.read()
            assert (sequence, resource, body) == (number, "rfc", b"%d" % number)
            assert table[4:] in properties
            reader.send(b"\x06", sequence, b"\x01")
        reader.send(b"\x04", 3, short("rfc"))
        assert reader.receive() == (b"\x02" + u64(3), b"200")


@pytest.mark.requirement("MTL-14", "MTL-55", "MTL-62")
def test_misframed_and_unknown_commands_are_survived(shared: RunningBroker) -> None:
    with raw(shared.endpoint, "test") as client:
        flow = client.lease("Writer", resources=[], confirm="none")
        for frames in ([b""], [b"\x05"], [b"a", b"b", b"c"], [b"\xff" * 100, b""], [b"", b"", b"", b""]):
            flow.dealer.send_multipart(frames)
        flow.dealer.send_multipart([b"\x08", b""])
        assert flow.receive() == (b"\x09", b"")


@pytest.mark.requirement("MTL-05", "MTL-50", "MTL-51")
def test_a_request_that_is_dropped_gets_no_answer_and_hurts_nobody(shared: RunningBroker) -> None:
    with raw(shared.endpoint, "test") as client, raw(shared.endpoint, "test") as other:
        client.req.setsockopt(zmq.RCVTIMEO, 200)
        client.req.send_multipart([b"Connection.Open", b"no JSON"])
        with pytest.raises(zmq.Again):
            client.req.recv_multipart()
        assert other.ask("Connection.Profile", profile="log")[0] == 200


def test_plain_and_packed_contents_of_one_resource_are_read_by_both_kinds_of_reader(
    shared: RunningBroker,
) -> None:
    with raw(shared.endpoint) as client:
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
        got = [reader.read() for _ in expected]
        assert [x[0] for x in got] == list(range(1, len(expected) + 1))
        assert [x[3] for x in got] == expected
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
    """`mtl broker` until it ends by itself."""
    command = [sys.executable, "-m", "mtl.cli.main", "broker", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


def test_it_says_that_it_is_ready_and_ends_with_0_on_sigterm(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mtl.cli.main", "broker", "--endpoint", "tcp://127.0.0.1:0"]
    with subprocess.Popen(
        [*command, "--data", str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("mtl broker ready at tcp://127.0.0.1:")
        assert f"pid {process.pid}" in line
        with raw(line.split()[4]) as client:
            assert client.ask("Resource.Create", resource="a")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stdout.read() == ""


@pytest.mark.parametrize("how", ["kill", "stop"])
def test_every_confirmed_content_is_there_after_a_restart(tmp_path: Path, how: str) -> None:
    """Killed in the middle of a stream: what was confirmed is there, what follows is a prefix of what was sent."""
    with broker(tmp_path / "data") as running:
        with raw(running.endpoint) as client:
            client.ask("Resource.Create", resource="a")
            writer = client.lease("Writer", resources=["a"], confirm="full")
            for number in range(1, 2_001):
                writer.content(number, b"%d" % number)
            confirmed = writer.confirmed()
            while confirmed < 300:
                confirmed = writer.confirmed()
            getattr(running, how)()
        running.restart()
        with raw(running.endpoint) as client:
            code, described = client.ask("Resource.Describe", resource="a")
            stored = described["resources"][0]["next"] - 1
            assert (code, stored >= confirmed) == (200, True)
            reader = client.lease("Reader", resources=["a"], **{"from": "earliest"})
            reader.summon("a")
            got = [reader.read() for _ in range(stored)]
            assert [x[0] for x in got] == list(range(1, stored + 1))
            assert [x[3] for x in got] == [b"%d" % n for n in range(1, stored + 1)]


def one_line(finished: subprocess.CompletedProcess[str], *words: str) -> None:
    assert finished.returncode == 1, finished
    lines = finished.stderr.strip().splitlines()
    assert len(lines) == 1, finished.stderr
    assert lines[0].startswith("mtl: ")
    assert all(word in lines[0] for word in words), lines[0]


def test_a_directory_in_use(shared: RunningBroker) -> None:
    finished = run("--endpoint", "tcp://127.0.0.1:0", "--data", str(shared.data))
    one_line(finished, "another broker", str(shared.pid), str(shared.data))


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        endpoint = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        one_line(run("--endpoint", endpoint, "--data", str(tmp_path)), "cannot listen on", endpoint)


def test_data_of_a_newer_version(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "broker.db")
    db.execute(f"PRAGMA user_version={VERSION + 1}")
    db.close()
    before = (tmp_path / "broker.db").read_bytes()
    one_line(run("--endpoint", "tcp://127.0.0.1:0", "--data", str(tmp_path)), f"format {VERSION + 1}")
    assert (tmp_path / "broker.db").read_bytes() == before


@pytest.mark.parametrize("endpoint", ["tcp://0.0.0.0:0", "tcp://*:0", "tcp://[::]:0"])
def test_beyond_loopback_without_credentials(tmp_path: Path, endpoint: str) -> None:
    one_line(run("--endpoint", endpoint, "--data", str(tmp_path / "data")), "insecure", endpoint)
    assert not (tmp_path / "data").exists()


def test_a_configuration_with_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text("endpiont = 'tcp://127.0.0.1:0'")
    one_line(run("--config", str(path)), str(path), "endpiont")
    one_line(run("--config", str(tmp_path / "nowhere.toml")), "cannot read")


def test_auto_create_from_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text('auto-create = ["auto-*"]')
    with broker(tmp_path / "data", path) as running, raw(running.endpoint) as client:
        writer = client.lease("Writer", resources=["auto-1"], confirm="full")
        writer.content(1, b"x")
        assert writer.confirmed() == 1
        assert client.ask("Connection.Writer", resources=["other"])[0] == 404


# --- slow readers -------------------------------------------------------------------------------------------


def own_memory(pid: int) -> int:
    """Octets that only this process has: mapped segments, which the system takes back when it needs them, left out.

    0 where the system does not tell.
    """
    status = Path(f"/proc/{pid}/status")
    lines = status.read_text().splitlines() if status.exists() else []
    return sum(int(x.split()[1]) * 1024 for x in lines if x.startswith("RssAnon"))


@pytest.mark.parametrize("packed", [False, True])
def test_a_reader_that_stands_still_costs_no_memory(tmp_path: Path, packed: bool) -> None:
    """300 MiB wait for a reader without confirmation that reads nothing; others are served meanwhile."""
    contents, chunks = 16, 300
    most = (
        limits.TAIL_BYTES + 64 * MIB + 96 * MIB
    )  # the newest bodies, what the reader's queue holds, the rest
    bodies = [bytes([n]) * (MIB // contents) for n in range(contents)]
    with broker(tmp_path / "data") as running, raw(running.endpoint) as client:
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
