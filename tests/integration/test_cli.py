"""The command line with a real broker, each command in its own process."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import mtl
from mtl.testing import RunningBroker
from mtl.wire.control import StageSpec

PATIENCE_S = 60.0


def run(*arguments: str, given: str = "", code: int = 0) -> str:
    """Standard output of `mtl` with these arguments; its last line of standard error for a failure."""
    done = subprocess.run(
        [sys.executable, "-m", "mtl.cli.main", *arguments],
        input=given.encode(),
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == code, done.stderr.decode()
    return done.stderr.decode() if code else done.stdout.decode()


@pytest.fixture
def at(mtl_broker: RunningBroker) -> tuple[str, str]:
    return "--endpoint", mtl_broker.endpoint


def test_resources_are_created_listed_described_and_deleted(at: tuple[str, str]) -> None:
    created = run(
        "resource",
        "create",
        "orders",
        "--retain-age",
        "7d",
        "--retain-bytes",
        "10g",
        "--retain-for",
        "spark",
        *at,
    )
    assert created == "orders: 0 contents, sync\n"
    assert run("resource", "create", "orders", *at, code=1).startswith("mtl: 409 exists: ")
    run("resource", "create", "orders", "--exist-ok", *at)
    assert run("resource", "list", *at).splitlines()[1].split()[:4] == ["orders", "1", "1", "0"]
    listed = json.loads(run("resource", "list", "--json", *at))
    assert listed["retention"] == {"bytes": 10 << 30, "age": 7 * 86_400.0, "groups": ["spark"]}
    assert "10.0 GiB" in run("resource", "describe", "orders", *at)
    assert "unknown-resource" in run("resource", "describe", "orders", "returns", *at, code=1)
    run("resource", "delete", "orders", "--yes", *at)
    assert run("resource", "list", "--json", *at) == ""


def test_lines_are_published_and_shown(at: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"".join(b"%d\n" % n for n in range(1_000)) + b"the last line has no newline")
    run("publish", "orders", str(file), "--create", *at)
    run("publish", "orders", "-", "-p", "kind=greeting", *at, given="hello\n\n")
    assert run("tail", "orders", "--from", "earliest", *at).splitlines()[:1000] == [
        str(n) for n in range(1_000)
    ]
    assert run("tail", "orders", "--from", "-3", *at) == "the last line has no newline\nhello\n\n"
    assert run("tail", "orders", "--from", "7", "-n", "2", *at) == "6\n7\n"
    assert run("tail", "orders", "--from", "latest", *at) == ""
    content = json.loads(run("tail", "orders", "--from", "1002", "-n", "1", "--json", *at))
    assert (content["sequence"], content["body"], content["properties"]) == (
        1_002,
        "hello",
        {"kind": "greeting"},
    )
    assert "kind" in run("tail", "orders", "--from", "1002", "-n", "1", "-v", *at)
    assert "neither" in run("tail", "orders", "--from", "yesterday", *at, code=1)
    assert "cannot read" in run("publish", "orders", str(tmp_path / "nothing"), *at, code=1)
    assert "NAME=VALUE" in run("publish", "orders", "-p", "x", *at, code=1)


def test_tail_follows_until_it_is_interrupted(at: tuple[str, str]) -> None:
    run("publish", "orders", "--create", *at, given="one\n")
    following = subprocess.Popen(
        [sys.executable, "-m", "mtl.cli.main", "tail", "orders", "--follow", *at],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert following.stdout is not None
    with following, following.stdout as output:
        assert output.readline() == b"one\n"
        run("publish", "orders", *at, given="two\n")
        assert output.readline() == b"two\n"
        following.send_signal(signal.SIGINT)
        assert following.wait(PATIENCE_S) == 130


def test_a_closed_output_pipe_ends_the_command(at: tuple[str, str]) -> None:
    run("publish", "orders", "--create", *at, given="x" * 100 + "\n" * 20_000)
    command = f"{sys.executable} -m mtl.cli.main tail orders --from earliest {' '.join(at)} | head -n 1"
    done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, timeout=PATIENCE_S, check=True)
    assert (done.stdout, done.stderr) == (b"x" * 100 + b"\n", b"")


def test_groups_are_shown_and_deleted(mtl_broker: RunningBroker, at: tuple[str, str]) -> None:
    run("publish", "orders", "--create", *at, given="one\ntwo\n")
    with mtl.connect(mtl_broker.endpoint) as connection, connection.reader("orders", group="spark") as reader:
        reader.confirm(1)
        reader.ping_holder()
    cursor = json.loads(run("cursors", "--json", *at))
    assert (cursor["group"], cursor["position"], cursor["behind"]) == ("spark", 2, 1)
    assert run("cursors", "--group", "spark", *at).splitlines()[1].split()[:5] == [
        "spark",
        "orders",
        "2",
        "3",
        "1",
    ]
    assert 0 < cursor["bytes-behind"] < 1_000
    assert 0 < cursor["seconds-behind"] < PATIENCE_S
    assert run("cursors", "reset", "spark", "--to", "earliest", *at) == "spark orders: 2 -> 1\n"
    later = "2999-01-01T00:00:00Z"
    assert run("cursors", "reset", "spark", "--to", later, "--resource", "orders", *at).endswith("-> 3\n")
    assert run("cursors", "reset", "spark", "--to", "2", *at) == "spark orders: 3 -> 2\n"
    assert "--to is neither" in run("cursors", "reset", "spark", "--to", "noon", *at, code=1)
    assert "no cursor anywhere" in run("cursors", "reset", "nobody", "--to", "earliest", *at, code=1)
    with mtl.connect(mtl_broker.endpoint) as connection, connection.reader("orders", group="spark"):
        assert "in-use" in run("cursors", "reset", "spark", "--to", "1", *at, code=1)
        run("cursors", "reset", "spark", "--to", "1", "--force", *at)
    run("cursors", "delete", "spark", "orders", *at)
    assert run("cursors", "--json", *at) == ""
    assert "unknown-cursor" in run("cursors", "delete", "spark", "orders", *at, code=1)


def test_a_checkpoint_of_spark_is_shown(
    mtl_broker: RunningBroker, at: tuple[str, str], tmp_path: Path
) -> None:
    run("publish", "orders", "--create", *at, given="one\ntwo\nthree\n")
    with mtl.connect(mtl_broker.endpoint) as connection:
        incarnation = connection.describe(["orders"])["orders"].incarnation
    resources = {"orders": {"f": 1, "i": incarnation, "n": 3}, "gone": {"f": 1, "i": "i", "n": 2}}
    resources["again"] = {"f": 1, "i": "i", "n": 2}
    resources |= {f"{'x' * 100}{n}": resources["gone"] for n in range(10)}  # more than a pattern could name
    end = json.dumps({"resources": resources, "version": 1})
    for log, text in (("offsets", f"v1\n{{}}\n{end}"), ("commits", "v1\n{}")):
        (tmp_path / log).mkdir()
        (tmp_path / log / "0").write_text(text)
    run("resource", "create", "again", *at)
    printed = [json.loads(text) for text in run("checkpoint", str(tmp_path), "--json", *at).splitlines()]
    found = {
        cursor["resource"]: (cursor["position"], cursor["behind"], cursor["state"]) for cursor in printed
    }
    assert found["orders"] == (3, 1, "served")
    assert found["gone"] == (2, None, "deleted")
    assert found["again"][2] == "created again"
    assert "batch 0 is committed" in run("checkpoint", str(tmp_path), *at)
    assert "is not the checkpoint" in run("checkpoint", str(tmp_path / "nothing"), *at, code=1)


def test_stages_are_shown_aborted_and_forgotten(mtl_broker: RunningBroker, at: tuple[str, str]) -> None:
    with mtl.connect(mtl_broker.endpoint) as connection:
        connection.create_resource("orders")
        stages = []
        for version in (1, 2):
            with connection.writer("orders", stage=StageSpec(application="app", version=version)) as writer:
                writer.send(b"x")
                stages.append(writer.seal().stage)
        connection.stage_commit("app", 1, stages[:1], digest={"rows": "1"})
    waiting, committed = [json.loads(text) for text in run("stages", "list", "--json", *at).splitlines()]
    assert (waiting["stage"], waiting["contents"]) == (stages[1], {"orders": 1})
    assert (committed["application"], committed["version"]) == ("app", 1)
    assert committed["digest"] == {"rows": "1"}
    printed = run("stages", "list", "app", *at)
    assert "rows: 1" in printed
    assert re.search(r"AGE .*\n.* orders: 1 +\d+ B +\d+\.\d s +20", printed)
    run("stages", "abort", stages[1], *at)
    run("stages", "forget", "app", *at)
    assert run("stages", "list", "--json", *at) == ""


def test_verify_reads_all_contents_and_names_the_damage(
    mtl_broker: RunningBroker, at: tuple[str, str]
) -> None:
    run("publish", "orders", "--create", *at, given="some text to damage\n" * 1_000)
    assert "1000 contents" in run("verify", str(mtl_broker.data))
    mtl_broker.stop()
    [segment] = mtl_broker.data.glob("resources/*/*.segment")
    stored = bytearray(segment.read_bytes())
    stored[stored.index(b"some text") + 500] ^= 1
    segment.write_bytes(stored)
    reports = [
        json.loads(text) for text in run_failing("verify", str(mtl_broker.data), "--json").splitlines()
    ]
    assert reports[0]["log"] == "orders"
    assert "is not a broker's data directory" in run("verify", str(mtl_broker.data / "resources"), code=1)
    mtl_broker.start()


def run_failing(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "mtl.cli.main", *arguments],
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return done.stdout.decode()


def test_an_absent_broker_is_one_line_and_exit_code_1() -> None:
    output = run("--timeout", "0.5", "resource", "list", "--endpoint", "tcp://127.0.0.1:1", code=1)
    assert output.startswith("mtl: no answer from tcp://127.0.0.1:1 within ")
    assert output.count("\n") == 1


def test_the_endpoint_may_come_from_the_environment(
    mtl_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MTL_ENDPOINT", mtl_broker.endpoint)
    run("resource", "create", "orders")
    assert "orders" in run("resource", "list")
    assert run("version").strip() == mtl.__version__


def test_an_endpoint_before_the_command_overrides_the_environment(
    mtl_broker: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MTL_ENDPOINT", "tcp://127.0.0.1:1")
    run("--endpoint", mtl_broker.endpoint, "resource", "create", "orders")
    assert "orders" in run("resource", "list", "--endpoint", mtl_broker.endpoint)


def test_the_broker_command_refuses_invalid_settings_and_leaves_no_files(tmp_path: Path) -> None:
    assert "insecure" in run("broker", "--endpoint", "tcp://0.0.0.0:0", "--data", str(tmp_path / "a"), code=1)
    (tmp_path / "broker.toml").write_text("no-such-setting = 1\n")
    assert "no-such-setting" in run("broker", "--config", str(tmp_path / "broker.toml"), code=1)
    assert [path.name for path in tmp_path.iterdir()] == ["broker.toml"]
