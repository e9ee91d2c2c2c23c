"""Finds the code in README.md and docs, and runs it as a reader would, from the top of a page to its end.

    python    run in one namespace for the page; `spark` is defined as in the shell of pyspark
    sql       run by spark.sql, statement by statement; the last one's rows are printed
    bash      run by bash in the page's directory, with the broker as MTL_ENDPOINT
    sh        not run, since it installs, needs another machine or does not end; its commands must exist
    toml      read as a configuration of the broker
    json      read as JSON
    text      with the title "Output": what the block before it prints, where … stands for anything within a line

Names of files are relative to the page's directory, also those of Spark that begin with work/. Ports of 127.0.0.1 are
replaced by free ones, 5975 by that of a broker that runs. /var/lib/mtl is that broker's data directory.
"""

from __future__ import annotations

import fnmatch
import io
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from mtl.broker.runtime.config import load
from mtl.doors.config import load as load_doors
from mtl.testing import RunningBroker

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"

DATA = "/var/lib/mtl"

BASH_S = 120.0
"""A block that takes longer hangs."""

OUTPUT = 'title="Output"'
CHECKED = frozenset({"toml", "json", "sh", "text", "yaml", "http"})
"""Languages that run nothing."""
ELSEWHERE = frozenset(
    {"pip", "python", "pyspark", "printf", "chmod", "cp", "systemctl", "spark-submit", "docker"}
)
"""Commands that are not the project's, in blocks that are not run."""

_FENCE = re.compile(r"^ *```(\w*)([^\n]*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_PORT = re.compile(r"127\.0\.0\.1:(\d+)")
_WORK = re.compile(r'(["\'])work/')


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `line` is where its code begins."""

    language: str
    text: str
    line: int
    is_output: bool


def pages() -> list[Path]:
    """README.md, CONTRIBUTING.md and every page in docs."""
    return [README, ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> list[Block]:
    """The blocks in order. ValueError for one without a language."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        language, title, code = match.groups()
        line = text.count("\n", 0, match.start()) + 2
        if not language:
            raise ValueError(f"{page}:{line} does not say its language")
        found.append(Block(language, code, line, OUTPUT in title))
    return found


def runs(page: Path) -> bool:
    """Whether any part of the page is run."""
    return any(block.language not in CHECKED for block in blocks(page))


def needs_spark(page: Path) -> bool:
    """Whether it is run with Spark."""
    return any(
        block.language == "sql"
        or (block.language == "python" and re.search(r"\bspark\.|\bspark\b\n", block.text))
        for block in blocks(page)
    )


@dataclass
class Run:
    """A page being run: all its files are in `place`, and `close` ends its background processes."""

    page: Path
    place: Path
    broker: RunningBroker
    spark: Any
    names: dict[str, Any] = field(default_factory=dict)
    _ports: dict[str, str] = field(default_factory=dict)
    _groups: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """The variable `spark`, as in the shell of pyspark."""
        self._ports["5975"] = self.broker.endpoint.rpartition(":")[2]
        if self.spark is not None:
            self.names["spark"] = self.spark

    def all(self) -> None:
        """Run every block, and compare its output with the following block if that is an output block."""
        found = blocks(self.page)
        for at, block in enumerate(found):
            if block.is_output:
                continue
            printed = self._run(block)
            if at + 1 < len(found) and found[at + 1].is_output:
                compare(printed, found[at + 1], self.page)

    def close(self) -> None:
        """End the processes that blocks left in the background."""
        for group in self._groups:
            try:
                os.killpg(group, signal.SIGKILL)
            except ProcessLookupError:
                continue

    def _run(self, block: Block) -> str:
        kinds: dict[str, Callable[[str, int], str]] = {
            "python": self._python,
            "sql": self._sql,
            "bash": self._bash,
            "toml": self._toml,
        }
        kind = kinds.get(block.language)
        return kind(self._here(block.text), block.line) if kind is not None else check(block)

    def _here(self, text: str) -> str:
        """With this run's ports and directory."""
        text = _PORT.sub(lambda found: f"127.0.0.1:{self._port(found[1])}", text)
        text = text.replace(DATA, str(self.broker.data))
        return _WORK.sub(lambda found: f"{found[1]}{self.place}/work/", text)

    def _port(self, port: str) -> str:
        if port not in self._ports:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self._ports[port] = str(free.getsockname()[1])
        return self._ports[port]

    def _python(self, code: str, line: int) -> str:
        before = set(self.names)
        printed = io.StringIO()
        with redirect_stdout(printed):
            exec(compile("\n" * (line - 1) + code, str(self.page), "exec"), self.names)
            for name in sorted(set(self.names) - before):
                if name.startswith("test_"):
                    self.names[name](self.broker)
        return printed.getvalue()

    def _sql(self, code: str, line: int) -> str:
        printed = io.StringIO()
        statements = [statement for statement in code.split(";") if statement.strip()]
        with redirect_stdout(printed):
            for at, statement in enumerate(statements, 1):
                rows = self.spark.sql(statement)
                if at == len(statements):
                    rows.show(truncate=False)
        return printed.getvalue()

    def _bash(self, code: str, line: int) -> str:
        environment = dict(os.environ, MTL_ENDPOINT=self.broker.endpoint, TERM="dumb")
        environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
        output = self.place / f"block-{line}.out"
        with output.open("w") as file:  # a file: processes in the background would keep a pipe open
            bash = subprocess.Popen(
                ["bash", "-euo", "pipefail", "-c", code],
                cwd=self.place,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._groups.append(bash.pid)
            code_of_end = bash.wait(BASH_S)
        printed = output.read_text(encoding="utf-8")
        assert code_of_end == 0, f"{self.page}:{line} ended with {code_of_end}:\n{printed}"
        return printed

    def _toml(self, code: str, line: int) -> str:
        file = self.place / f"block-{line}.toml"
        file.write_text(code, encoding="utf-8")
        load(file)
        load_doors(file)
        return ""


def compare(printed: str, output: Block, page: Path) -> None:
    """Raises AssertionError if the printed output differs from the page."""
    found, expected = (text.rstrip().splitlines() for text in (printed, output.text))
    same = len(found) == len(expected) and all(map(_alike, found, expected))
    assert same, f"{page}:{output.line} shows\n{output.text}\nbut it prints\n{printed}"


def _alike(found: str, expected: str) -> bool:
    pattern = re.sub(r"([\[?*])", r"[\1]", expected.rstrip()).replace("…", "*")
    return fnmatch.fnmatchcase(found.rstrip(), pattern)


def check(block: Block) -> str:
    """Check a block without running it. Raises an error for invalid code."""
    if block.language == "json":
        msgspec.json.decode(block.text)
    elif block.language == "sh":
        for command in shell_commands(block.text):
            _check_command(command)
    elif block.language not in CHECKED:
        raise AssertionError(f"line {block.line}: nothing is known about the language {block.language}")
    return ""


def shell_commands(text: str) -> Iterator[list[str]]:
    """The words of each command, without settings of variables before it."""
    for line in text.replace("\\\n", " ").splitlines():
        for part in re.split(r"\s(?:\||&&|&|>)\s|\s&$", f"{line} "):
            words = shlex.split(part, comments=True)
            while words and re.match(r"[A-Za-z_]+=", words[0]):
                words = words[1:]
            if words:
                yield words
                if f"{part} > " in line:
                    break


def _check_command(words: list[str]) -> None:
    from documentation import command_line  # noqa: PLC0415 loads the command line

    name, *arguments = words
    if name == "mtl":
        command_line.parse(arguments)
    elif name.startswith("./"):
        assert (ROOT / name).exists() or list(ROOT.glob(f"spark-submit-examples/**/{name[2:]}")), name
    else:
        assert name in ELSEWHERE, name
