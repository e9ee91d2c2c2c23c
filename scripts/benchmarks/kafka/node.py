"""A single Kafka broker in KRaft mode, configured as in Kafka's quick start, but with free ports and its own
directory.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from benchmarks.kafka import jars
from benchmarks.measure import NotMeasured

READY_S = 120.0
STOP_S = 30.0

HEAP = ("-Xmx1G", "-Xms1G")
COLLECTOR = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", "-XX:InitiatingHeapOccupancyPercent=35")
"""Both are the values of kafka-server-start.sh."""

FLUSH_EVERY_MESSAGE = {"log.flush.interval.messages": "1"}
"""A flush before every acknowledgement, as the MTL broker does."""

_SETTINGS = {
    # config/server.properties of the distribution, except for addresses, the directory, and the immediate deletion of
    # removed topics: a minute later it would fall into another measurement.
    "process.roles": "broker,controller",
    "node.id": "1",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    "num.network.threads": "3",
    "num.io.threads": "8",
    "socket.send.buffer.bytes": "102400",
    "socket.receive.buffer.bytes": "102400",
    "socket.request.max.bytes": "104857600",
    "num.partitions": "1",
    "num.recovery.threads.per.data.dir": "2",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.retention.check.interval.ms": "300000",
    "log.segment.delete.delay.ms": "0",
}

_LOGGING = """\
status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = [%d] %p %m (%c)%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class Node:
    """A running broker under `place`. `extra` are settings in addition to those of the quick start."""

    def __init__(self, place: Path, extra: dict[str, str] | None = None) -> None:
        self._classpath = os.pathsep.join(map(str, jars.broker().fetch()))
        self._place = place
        place.mkdir(parents=True)
        client, controller = free_port(), free_port()
        self.endpoint = f"127.0.0.1:{client}"
        self._port = client
        addresses = {
            "listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{client},CONTROLLER://127.0.0.1:{controller}",
            "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
            "log.dirs": str(place / "logs"),
        }
        settings = {**_SETTINGS, **addresses, **(extra or {})}
        self._config = place / "server.properties"
        self._config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        self._logging = place / "log4j2.properties"
        self._logging.write_text(_LOGGING)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Format the storage and start; returns when it accepts connections. NotMeasured if it does not."""
        cluster = self._tool("random-uuid").split()[-1]
        self._tool("format", "--standalone", "-t", cluster, "-c", str(self._config))
        with (self._place / "kafka.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._java((*HEAP, *COLLECTOR), "kafka.Kafka", str(self._config)),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a process group of its own, so that a kill ends all its processes
            )
        deadline = time.monotonic() + READY_S
        while not self._accepts():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise NotMeasured(f"the Kafka broker did not start: {self._tail()}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Stop it; kill it if that takes too long. Its data is not used again."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._process = None

    def _tool(self, *arguments: str) -> str:
        done = subprocess.run(
            self._java((), "kafka.tools.StorageTool", *arguments), capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise NotMeasured(f"Kafka's storage tool failed: {(done.stderr or done.stdout).strip()[-200:]}")
        return done.stdout

    def _java(self, flags: tuple[str, ...], main: str, *arguments: str) -> list[str]:
        home = os.environ.get("JAVA_HOME")
        java = f"{home}/bin/java" if home else "java"
        logging = f"-Dlog4j2.configurationFile={self._logging}"
        return [java, *flags, logging, "-cp", self._classpath, main, *arguments]

    def _accepts(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), timeout=1.0):
                return True
        except OSError:
            return False

    def _tail(self) -> str:
        lines = (self._place / "kafka.log").read_text(errors="replace").splitlines()
        return " ".join(lines[-3:])[:300]


def free_port() -> int:
    """A port without a listener."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
