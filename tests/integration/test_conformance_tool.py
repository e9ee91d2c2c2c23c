"""`mtl conformance`: the broker passes, a server with a defect fails its requirement, and clients get theirs."""

from __future__ import annotations

import json
import os
import re
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zmq

from mtl.broker.access.accounts import Right
from mtl.broker.runtime.users import Users, new_password
from mtl.conformance import frames
from mtl.conformance.peer import Target
from mtl.conformance.report import CheckResult, CheckVerdict, NotSeen, RequirementLevel
from mtl.conformance.server import check_server, fetch_profiles
from mtl.conformance.twin import Twin
from mtl.storage.records import GrantRecord
from mtl.testing import RunningBroker, broker
from tests.support.defective_server import DEFECTS, ContentsAfterDismiss
from tests.support.minimal_server import MinimalServer
from tests.support.texts import in_order

AT_A_TIME = 4
"""Checks at the same time; with more their processor time would be taken for the silence of a server."""

MTL = [sys.executable, "-c", "from mtl.cli.main import main; main()"]

OUR_CLIENT = """
import os, mtl
endpoint = os.environ["MTL_ENDPOINT"]
for profile, confirm in (("log", "full"), ("test", "none")):
    with mtl.connect(endpoint, profile=profile, request_timeout=0.5) as c:
        with c.reader("resource", confirm=confirm) as reader, c.writer("resource", confirm=confirm) as writer:
            for place in range(5):
                content = reader.next(timeout=10)
                assert content.body == b"%d" % place, content
            reader.next(timeout=0.1)
            writer.send(b"x", {"n": 1})
            writer.flush()
with mtl.connect(endpoint, profile="queue") as c, c.consumer(["resource"]) as consumer:
    for place in range(5):
        content = consumer.next(timeout=10)
        content.reject(recycle=True) if place else content.confirm()
    consumer.dismiss("resource")
    consumer.next(timeout=0.2)
"""


def checked(target: Target) -> dict[str, CheckResult]:
    return {finding.requirement: finding for finding in check_server(target)}


def failed(findings: dict[str, CheckResult]) -> set[str]:
    return {
        name
        for name, finding in findings.items()
        if finding.verdict is CheckVerdict.FAILED and finding.level is RequirementLevel.MUST
    }


def tool(*arguments: str, **environment: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and findings."""
    result = subprocess.run(
        [*MTL, "--timeout", "8", "conformance", "--json", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert not result.stderr, result.stderr
    return result.returncode, [json.loads(line) for line in result.stdout.splitlines()]


# --- servers ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", ["test", "log", "queue"])
def test_the_broker_meets_every_requirement(mtl_broker: RunningBroker, profile: str) -> None:
    code, findings = tool(mtl_broker.endpoint, "--profile", profile)
    assert [finding for finding in findings if finding["verdict"] == "FAILED"] == []
    assert code == 0
    unseen = {finding["requirement"] for finding in findings if finding["verdict"] == "not seen"}
    assert unseen == ({"MTL-86", "MTL-93"} if profile == "test" else set())
    assert all(finding["frames"] for finding in findings)


def test_a_server_of_the_rfc_alone_meets_every_must() -> None:
    with MinimalServer() as server:
        findings = checked(Target(server.endpoint, "test", patience_s=1.0))
    assert failed(findings) == set()
    assert findings["MTL-102"].verdict is CheckVerdict.FAILED, "it never pings, which it only should"


@pytest.fixture(scope="module")
def findings_of_defects() -> dict[type[MinimalServer], dict[str, CheckResult]]:
    """The findings for each server with a defect; a check mostly waits for silence, so some run at the same time."""

    def check(defect: type[MinimalServer]) -> dict[str, CheckResult]:
        with defect() as server:
            return checked(Target(server.endpoint, "test", patience_s=0.5))

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return dict(zip(DEFECTS, pool.map(check, DEFECTS), strict=True))


@pytest.mark.parametrize(("defect", "requirement"), DEFECTS.items())
def test_a_planted_defect_fails_its_requirement(
    findings_of_defects: dict[type[MinimalServer], dict[str, CheckResult]],
    defect: type[MinimalServer],
    requirement: str,
) -> None:
    findings = findings_of_defects[defect]
    assert requirement in failed(findings)
    assert findings[requirement].frames
    also = {"MTL-65"} if requirement == "MTL-62" else set()  # it needs the numbers of Responses, too
    assert failed(findings) == {requirement} | also


def test_a_defect_is_printed_with_its_frames() -> None:
    with ContentsAfterDismiss() as server:
        result = subprocess.run(
            [*MTL, "--timeout", "2", "conformance", server.endpoint],
            capture_output=True,
            text=True,
            check=False,
        )
    assert result.returncode == 1
    lines = result.stdout.splitlines()
    [at] = [n for n, line in enumerate(lines) if line.startswith("MTL-82 ")]
    assert "FAILED" in lines[at]
    assert any(
        line.startswith("    < Content 99 'resource': 05") and "late" in line
        for line in lines[at + 1 : at + 30]
    )
    assert not any("7b0a20" in line for line in lines), "indented JSON is shown as text"
    assert lines[-1].endswith("MUSTs violated: 1")


def test_an_absent_server_is_an_error() -> None:
    result = subprocess.run(
        [*MTL, "--timeout", "1", "conformance", "tcp://127.0.0.1:1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 1
    assert "cannot be checked" in result.stderr


def test_a_server_has_to_be_named() -> None:
    """The checks create resources and write to them, so they have no default."""
    without = {name: value for name, value in os.environ.items() if name != "MTL_ENDPOINT"}
    command = [*MTL, "--timeout", "0.1", "conformance"]
    for environment, error in (
        ({}, "name the server"),
        ({"MTL_ENDPOINT": "tcp://127.0.0.1:1"}, "cannot be checked"),
    ):
        result = subprocess.run(
            command, capture_output=True, text=True, check=False, env={**without, **environment}
        )
        assert result.returncode == 1
        assert error in result.stderr
        assert result.stdout == ""


def test_a_server_that_demands_credentials_is_checked_with_them(tmp_path: Path) -> None:
    config, data = tmp_path / "broker.toml", tmp_path / "data"
    config.write_text("[authentication]\nanonymous = false\nplain-without-encryption = true\n")
    data.mkdir()
    with Users(data) as users:
        users.add("checker", new_password("secret", os.urandom, 4096), [])
        for right in Right:
            users.grant("checker", [GrantRecord("/", right.value, ".*")])
    with broker(data, config) as running:
        known = Target(running.endpoint, "log", user="checker", password="secret", patience_s=8)
        assert failed(checked(known)) == set()
        with pytest.raises(NotSeen, match="PLAIN with a given user"):
            fetch_profiles(replace(known, user=None))
        assert "log" in fetch_profiles(replace(known, virtual_host="/"))
        with pytest.raises(NotSeen, match="404"):
            fetch_profiles(replace(known, virtual_host="/none"))


# --- clients ------------------------------------------------------------------------------------------------


def test_the_client_meets_every_requirement() -> None:
    code, findings = tool("--client", "--", sys.executable, "-c", OUR_CLIENT)
    assert [finding for finding in findings if finding["verdict"] == "FAILED"] == []
    assert code == 0
    unseen = {finding["requirement"] for finding in findings if finding["verdict"] == "not seen"}
    assert unseen == set()


BAD_CLIENT = """
import os, json, zmq, struct
endpoint = os.environ["MTL_ENDPOINT"]
context = zmq.Context()
def ask(req, name, **body):
    req.send_multipart([name.encode(), json.dumps(body).encode()])
    found = [json.loads(x) if n else x for n, x in enumerate(req.recv_multipart())] if req.poll(500) else None
    if found and found[0] == b"401" and name == "Connection.Reader":
        ask(req, "Connection.Authorize", mechanism="ANONYMOUS", response="")
        return ask(req, name, **body)
    return found
def req():
    one = context.socket(zmq.REQ)
    one.linger = 0
    one.connect(endpoint)
    return one
first = req()
ask(first, "Connection.Open", protocol={"name": "MTL", "version": 1})
ask(first, "Connection.Profile", profile="log")  # it is not answered
one = req()
ask(one, "Connection.Open", protocol={"name": "MTL", "version": 1})
ask(one, "Connection.Profile", profile="log")
ask(one, "Connection.Authorize", mechanism="ANONYMOUS", response="")
ask(one, "Connection.Authorize", mechanism="ANONYMOUS", response="")  # the RFC allows it at any time
ask(one, "Connection.Profile", profile="log")
code, lease = ask(one, "Connection.Reader", resources=["resource"], confirm="none")
dealer = context.socket(zmq.DEALER)
dealer.linger = 1000
dealer.connect(endpoint)
dealer.send_multipart([b"\\3" + struct.pack(">Q", 1) + b"\\x08resource", b""])
dealer.send_multipart([b"\\1" + struct.pack(">Q", 1) + bytes([len(lease["lease"])]) + lease["lease"].encode(), b""])
dealer.send_multipart([b"\\4" + struct.pack(">Q", 2) + b"\\x08resource", b""])  # it is not the second one
for number in (3, 4):
    dealer.send_multipart([b"\\3" + struct.pack(">Q", number) + b"\\x08resource", b""])
dealer.send_multipart([b"\\6" + struct.pack(">Q", 5) + b"\\1", b""])
dealer.send_multipart([b"\\6" + struct.pack(">Q", 5) + b"\\2", b""])
for number, name in ((5, b"resource"), (6, b"resource"), (7, b"another")):
    dealer.send_multipart([b"\\4" + struct.pack(">QB", number, len(name)) + name, b""])
dealer.poll(1000)
dealer.close()
code, lease = ask(one, "Connection.Writer", resources=[], confirm="none")
dealer = context.socket(zmq.DEALER)
dealer.linger = 1000
dealer.connect(endpoint)
dealer.send_multipart([b"\\1" + struct.pack(">Q", 1) + bytes([len(lease["lease"])]) + lease["lease"].encode(), b""])
dealer.send_multipart([b"\\5" + struct.pack(">Q", 1) + b"\\0" + bytes(4), b"x"])
dealer.poll(1000)
dealer.close()
context.destroy(1000)
"""


def test_violations_of_a_client_are_reported() -> None:
    code, findings = tool("--client", "--", sys.executable, "-c", BAD_CLIENT)
    wrong = {finding["requirement"] for finding in findings if finding["verdict"] == "FAILED"}
    assert wrong == {"MTL-60", "MTL-70", "MTL-74", "MTL-75", "MTL-79", "MTL-85", "MTL-89"}
    early = next(finding for finding in findings if finding["requirement"] == "MTL-60")
    assert any(frame.startswith("> 202 | ") for frame in early["frames"]), "the reply that granted the lease"
    assert code == 1


def test_a_lease_of_a_client_that_was_not_granted_violates_mtl_60() -> None:
    with Twin() as twin, zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.linger = 0
        dealer.connect(twin.endpoint)
        dealer.send_multipart([struct.pack(">BQB", frames.LEASE, 1, 5) + b"other", b""])
        assert dealer.poll(5_000)
        assert dealer.recv_multipart() == [frames.numbered(frames.RESPONSE, 1), b"403"]
        (found,) = twin.wrong
        assert found.requirement == "MTL-60"
        assert re.search(in_order("'other'", 202), found.reason)


HELPERS = """
import os, json, sys, time, zmq
context = zmq.Context()
def connected(**options):
    global one
    one = context.socket(zmq.REQ)
    one.linger = 0
    for name, value in options.items():
        setattr(one, name, value)
    one.connect(os.environ["MTL_ENDPOINT"])
    return ask("Connection.Open", protocol={"name": "MTL", "version": 1})
def ask(name, **body):
    one.send_multipart([name.encode(), json.dumps(body).encode()])
    return one.recv_multipart()[0] if one.poll(500) else None
def log_in():
    ask("Connection.Authorize", mechanism="ANONYMOUS", response="")
connected()
ask("Connection.Profile", profile="log")  # it is not answered
"""
END = "\ncontext.destroy(0)\n"
AT_THE_FIRST = 'connected()\nassert ask("Connection.Profile", profile="log") == b"401"\n'
AT_A_LEASE = """
log_in()
ask("Connection.Profile", profile="log")
assert ask("Connection.Writer", resources=["r"], confirm="none") == b"401"
"""


def client_findings(program: str, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    code, findings = tool("--client", *options, "--", sys.executable, "-c", program)
    return code, {finding["requirement"]: finding for finding in findings}


@pytest.mark.parametrize("before", [AT_THE_FIRST, AT_THE_FIRST + AT_A_LEASE], ids=["first", "lease"])
@pytest.mark.parametrize(
    ("then", "reason"),
    [
        ("", "no Connection.Authorize came after the 401 to connection."),
        ("connected()", "no Connection.Authorize came after the 401 to connection."),
        ('ask("Connection.Profile", profile="log")', "connection.profile after a 401, in place of"),
    ],
    ids=["ends", "opens again", "ignores it"],
)
def test_a_client_that_does_not_log_in_after_a_401_violates_mtl_29(
    before: str, then: str, reason: str
) -> None:
    code, findings = client_findings(HELPERS + before + then + END)
    assert {name for name, finding in findings.items() if finding["verdict"] == "FAILED"} == {"MTL-29"}
    assert reason in findings["MTL-29"]["reason"]
    assert code == 1


def test_a_client_may_correlate_its_requests() -> None:
    """REQ_CORRELATE puts a frame before the empty one; the reply has to repeat it, or the socket drops it."""
    correlated = AT_THE_FIRST.replace("connected()", "assert connected(req_correlate=1) == b'201'")
    again = 'assert ask("Connection.Writer", resources=["r"], confirm="none") == b"202"'
    code, findings = client_findings(HELPERS + correlated + AT_A_LEASE + "log_in()\n" + again + END)
    assert [finding for finding in findings.values() if finding["verdict"] == "FAILED"] == []
    assert findings["MTL-15"]["verdict"] == "met"
    assert code == 0


@pytest.mark.parametrize(
    ("end", "verdict", "reason"),
    [
        ("sys.exit(3)", "FAILED", "its exit code is 3"),
        ("os.kill(os.getpid(), 9)", "FAILED", "signal 9 ended it"),
        ("time.sleep(60)", "not seen", "it did not end within the time"),
    ],
)
def test_the_exit_code_of_a_client_is_a_finding(end: str, verdict: str, reason: str) -> None:
    code, findings = client_findings(f"import os, sys, time\n{end}", "--seconds", "1")
    assert (findings["exit"]["verdict"], findings["exit"]["reason"]) == (verdict, reason)
    assert code == (1 if verdict == "FAILED" else 0)


def test_a_client_that_cannot_be_started_is_an_error() -> None:
    command = [*MTL, "conformance", "--client", "--", "no-such-command"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 1
    assert "cannot be started" in result.stderr
    assert "Traceback" not in result.stderr
