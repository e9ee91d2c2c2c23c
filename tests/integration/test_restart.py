"""A broker aborted by libzmq restarts and serves at once, for any content of its logs (SECURITY.md)."""

from __future__ import annotations

import configparser
import re
import shlex
import signal
import subprocess
import sys
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import pytest

from mtl.limits import SEGMENT_BYTES
from mtl.testing import broker
from tests.integration.test_cli import run
from tests.support.aborts import fill, served_after_an_abort
from tests.support.processes import killed_after
from tests.support.zmtp import RawPeer

CONF = Path(__file__).parents[2] / "conf"
LARGE = 3 * SEGMENT_BYTES // 2
"""Octets: a whole segment, and half a one that has to be looked at before it is written to."""
SERVES_S = 1.0
ROUNDS = 3

ROUTER = """
import sys, zmq
router = zmq.Context().socket(zmq.ROUTER)
router.setsockopt(zmq.ROUTER_MANDATORY, 1)
router.setsockopt(zmq.ROUTER_HANDOVER, int(sys.argv[1]))
print(router.bind_to_random_port("tcp://127.0.0.1"), flush=True)
while True:
    print(router.recv_multipart()[0].hex(), flush=True)
"""
"""A ROUTER without any code of this project. It prints its port, and the identity of each peer."""


@pytest.mark.parametrize("handover", ["0", "1"])
def test_an_announced_identity_still_ends_a_process_with_libzmq(handover: str) -> None:
    """When this fails, libzmq has repaired it: SECURITY.md and the pace of connections can say less."""
    command = [sys.executable, "-c", ROUTER, handover]
    with (
        killed_after(
            subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        ) as process,
        ExitStack() as peers,
    ):
        assert process.stdout is not None
        endpoint = f"tcp://127.0.0.1:{process.stdout.readline().strip()}"
        first = peers.enter_context(closing(RawPeer(endpoint)))
        first.shake_hands().send(b"x")
        generated = bytes.fromhex(process.stdout.readline())
        following = b"\0" + ((int.from_bytes(generated[1:]) + 1) % (1 << 32)).to_bytes(4)
        second = peers.enter_context(closing(RawPeer(endpoint, following)))
        second.shake_hands().send(b"x")
        assert bytes.fromhex(process.stdout.readline()) == following
        third = peers.enter_context(
            closing(RawPeer(endpoint))
        )  # libzmq generates the identity that is in use
        with suppress(OSError):  # it may end at once
            third.shake_hands().send(b"x")
        assert process.wait(20) == -signal.SIGABRT


def test_a_broker_with_a_large_log_serves_within_a_second_of_an_abort(tmp_path: Path) -> None:
    """Compared with a broker whose log is empty, because the start of Python depends on the machine."""
    with broker(tmp_path / "large") as large, broker(tmp_path / "empty") as empty:
        fill(large, LARGE)
        fill(empty, 0)
        rounds = [(served_after_an_abort(large), served_after_an_abort(empty)) for _ in range(ROUNDS)]
    assert min(with_log for with_log, _ in rounds) - min(without for _, without in rounds) < SERVES_S, rounds


# --- conf ---------------------------------------------------------------------------------------------------


@pytest.fixture
def unit() -> configparser.ConfigParser:
    parsed = configparser.ConfigParser(interpolation=None, strict=False)
    parsed.optionxform = str  # type: ignore[assignment, method-assign]  # names of systemd have capitals
    parsed.read(CONF / "mtl-broker.service")
    return parsed


def test_the_systemd_unit_restarts_the_broker_at_once_without_limit(unit: configparser.ConfigParser) -> None:
    service = unit["Service"]
    assert service["Restart"] == "always"
    assert service["RestartSec"] == "100ms"
    assert unit["Unit"]["StartLimitIntervalSec"] == "0"
    assert "-HUP" in service["ExecReload"]
    assert service["StateDirectoryMode"] == "0700"
    assert service["LimitCORE"] == "0", "a core file has keys and contents"


def test_the_systemd_unit_allows_only_what_a_broker_needs(unit: configparser.ConfigParser) -> None:
    service = unit["Service"]
    assert service["CapabilityBoundingSet"] == ""
    for setting in (
        *(
            "NoNewPrivileges",
            "PrivateTmp",
            "PrivateDevices",
            "ProtectHome",
            "ProtectClock",
            "ProtectHostname",
        ),
        *("ProtectKernelLogs", "ProtectKernelModules", "ProtectKernelTunables", "ProtectControlGroups"),
        *("RestrictNamespaces", "RestrictRealtime", "RestrictSUIDSGID", "LockPersonality", "RemoveIPC"),
    ):
        assert service[setting] == "yes", setting
    assert (service["ProtectSystem"], service["ProtectProc"]) == ("strict", "invisible")
    assert "@system-service" in (CONF / "mtl-broker.service").read_text(encoding="utf-8")


def test_the_pod_is_reached_by_clients_only() -> None:
    pod = (CONF / "kubernetes.yaml").read_text(encoding="utf-8")
    policy = next(part for part in pod.split("---\n") if "kind: NetworkPolicy" in part)
    assert "policyTypes: [Ingress, Egress]" in policy
    assert 'mtl-client: "true"' in policy
    assert "image: mtl-broker@sha256:" in pod


def test_commands_of_unit_and_pod_exist(unit: configparser.ConfigParser) -> None:
    pod = (CONF / "kubernetes.yaml").read_text(encoding="utf-8")
    in_pod = re.search(r"command: \[(.*)\]", pod)
    assert in_pod is not None
    known = run("broker", "--help")
    for command in (shlex.split(unit["Service"]["ExecStart"]), in_pod[1].split(", ")):
        program, name, *options = command
        assert (Path(program).name, name) == ("mtl", "broker")
        assert all(option in known for option in options if option.startswith("--"))
    assert "restartPolicy: Always" in pod
