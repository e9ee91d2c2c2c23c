"""Downloads the peer's jars with Maven, once: they remain under build/kafka."""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import NotMeasured

HERE = Path(__file__).parent
CACHE = HERE.parents[2] / "build" / "kafka"
PATIENCE_S = 900.0
"""The timeout for a download of about 60 MB on a slow line."""

_URL = re.compile(r"\(?\bhttps?://\S*")
_NOT_THERE = re.compile(
    r"(?:Could not find artifact |: )([\w.-]+:[\w.-]+:\w+:[\w.-]+)(?= (?:in|was not found))"
)


@dataclass(frozen=True)
class Jars:
    """The dependencies of a pom. `properties` are properties of the pom that are set, `label` names the directory."""

    pom: str
    label: str
    properties: tuple[tuple[str, str], ...] = ()

    def fetch(self) -> list[Path]:
        """The jars, downloaded if necessary. NotMeasured says why they are not available."""
        directory = CACHE / self.label
        if not directory.exists():
            self._download(directory)
        return sorted(directory.glob("*.jar"))

    def _download(self, directory: Path) -> None:
        maven = shutil.which("mvn")
        if maven is None:
            raise NotMeasured("Kafka's jars cannot be fetched: no mvn on PATH")
        unfinished = directory.with_name(f"{directory.name}.part")
        shutil.rmtree(unfinished, ignore_errors=True)
        command = [maven, "--batch-mode", "--quiet", "--update-snapshots", "--file", str(HERE / self.pom)]
        command += [f"-D{name}={value}" for name, value in self.properties]
        command += [
            "-DincludeScope=runtime",
            f"-DoutputDirectory={unfinished}",
            "dependency:copy-dependencies",
        ]
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                timeout=PATIENCE_S,
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except subprocess.TimeoutExpired:
            raise NotMeasured(f"mvn did not end within {PATIENCE_S:.0f} s") from None
        if done.returncode != 0:
            raise NotMeasured(_reason(done.stdout + done.stderr))
        unfinished.rename(directory)


def connector(spark_version: str, token_provider_version: str = "") -> Jars:
    """Spark's source and sink for Kafka, for a version of Spark."""
    token = token_provider_version or spark_version
    label = f"connector-{spark_version}" + (f"-{token}" if token != spark_version else "")
    return Jars("connector-pom.xml", label, (("connector.version", spark_version), ("token.version", token)))


def broker() -> Jars:
    """The broker, of the release in the pom."""
    return Jars("broker-pom.xml", f"broker-{broker_version()}")


def broker_version() -> str:
    """The release in the pom."""
    found = re.search(r"<kafka\.version>(.*)</kafka\.version>", (HERE / "broker-pom.xml").read_text())
    assert found is not None
    return found[1]


def _reason(output: str) -> str:
    """The first sentence of Maven's report, without addresses."""
    missing = _NOT_THERE.search(output)
    if missing is not None:
        return f"Maven finds no {missing[1]}"
    lines = [line for line in output.splitlines() if "ERROR" in line]
    return "mvn failed: " + _URL.sub("", lines[0] if lines else "no reason given").strip()[:200]
