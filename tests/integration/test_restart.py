"""A broker aborted by libzmq restarts and serves at once, for any content of its logs (SECURITY.md)."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import signal
import time
from pathlib import Path

import pytest

import mtl
from mtl.limits import SEGMENT_BYTES
from mtl.testing import RunningBroker, broker
from tests.integration.test_cli import run
from tests.support.contents import batch

CONF = Path(__file__).parents[2] / "conf"
LARGE = 3 * SEGMENT_BYTES // 2
"""Octets: a whole segment, and half a one that has to be looked at before it is written to."""
BODY = os.urandom(10_000)
PACK = 200
SERVES_S = 1.0
ROUNDS = 5


def served_after_an_abort(running: RunningBroker) -> float:
    """Seconds from the start of the process to the first confirmed and the first read content."""
    running.kill(signal.SIGABRT)
    began = time.perf_counter()
    running.start()
    with mtl.connect(running.endpoint) as connection:
        with connection.writer("orders") as writer:
            writer.send(b"after")
        end = connection.describe(["orders"])["orders"].next
        with connection.reader("orders", start=end - 1, until=end) as reader:
            assert [x.body for x in reader] == [b"after"]
    return time.perf_counter() - began


def test_a_broker_with_a_large_log_serves_within_a_second_of_an_abort(tmp_path: Path) -> None:
    """Compared with a broker whose log is empty, because the start of Python depends on the machine."""
    with broker(tmp_path / "large") as large, broker(tmp_path / "empty") as empty:
        for running in (large, empty):
            with mtl.connect(running.endpoint) as connection:
                connection.create_resource("orders", durability="os")
        with mtl.connect(large.endpoint) as connection, connection.writer("orders", packed=True) as writer:
            for _ in range(LARGE // (PACK * len(BODY))):
                writer.send_pack(batch([BODY] * PACK))
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
