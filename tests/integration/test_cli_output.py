"""Text of other users is shown by the command line with its terminal controls escaped."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata

import pytest
from rich.table import Table

import mtl
from mtl.cli.printable import PlainConsole
from mtl.testing import RunningBroker
from mtl.wire.visible import printable, printable_json

PATIENCE_S = 60.0

CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4=\x07"


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("plain, ünïcode, 日本語, \U0001f469", "plain, ünïcode, 日本語, \U0001f469"),
        ("zero\u200bwidth, tag\U000e0041", r"zero\u200bwidth, tag\U000e0041"),
        (CLIPBOARD, r"\x1b]52;c;cm0gLXJmIH4=\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("a\nb\r\tc\x00\x7f", r"a\nb\r\tc\x00\x7f"),
        ("\u202egpj.exe", r"\u202egpj.exe"),
        ("a\u2028b\u2066c\u200f", r"a\u2028b\u2066c\u200f"),
        (r"back\slash", r"back\slash"),
    ],
)
def test_terminal_controls_are_escaped(text: str, escaped: str) -> None:
    assert printable(text) == escaped
    assert json.loads(printable_json(json.dumps(text, ensure_ascii=False))) == text


def test_every_control_and_direction_mark_is_escaped() -> None:
    directions = {"BN", "LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    for number in range(0x3000):
        letter = chr(number)
        unsafe = unicodedata.category(letter) in {"Cc", "Zl", "Zp"} or (
            unicodedata.bidirectional(letter) in directions - {"BN"}
        )
        assert printable(letter).isprintable() or not unsafe, hex(number)
        assert printable_json(letter).isprintable() or not unsafe, hex(number)


def test_chosen_controls_may_be_kept() -> None:
    assert printable("a\tb\nc", keep="\t") == "a\tb\\nc"


@pytest.mark.parametrize("name", ["[bold]x", "[/x]", "[link=http://x]y[/link]", ":smile:", CLIPBOARD])
def test_a_console_prints_text_without_markup(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    console = PlainConsole(width=200, force_terminal=True)
    console.print(name)
    table = Table(box=None)
    table.add_column(name)
    table.add_row(name)
    console.print(table)
    printed = capsys.readouterr().out
    assert printed.count(printable(name)) == 3
    assert "\x07" not in printed
    assert "\x1b]" not in printed


def run(broker: RunningBroker, *arguments: str, code: int = 0) -> bytes:
    """Standard output and error of `mtl` with these arguments."""
    command = [sys.executable, "-m", "mtl.cli.main", *arguments, "--endpoint", broker.endpoint]
    done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == code, done.stderr.decode()
    return done.stdout + done.stderr


BODIES = [CLIPBOARD.encode(), b"two\nlines", "\u202egpj.exe".encode(), b"\x9b31m\xff", b"a\tb"]


def test_bodies_and_properties_are_single_escaped_lines(mtl_broker: RunningBroker) -> None:
    with mtl.connect(mtl_broker.endpoint) as connection:
        connection.create_resource("orders")
        with connection.writer("orders") as writer:
            for body in BODIES:
                writer.send(body, {"p": CLIPBOARD + "\u202e"})
    printed = run(mtl_broker, "tail", "orders")
    assert printed.decode().splitlines() == [
        r"\x1b]52;c;cm0gLXJmIH4=\x07",
        r"two\nlines",
        r"\u202egpj.exe",
        r"\x9b31m\xff",
        "a\tb",
    ]
    for options in (["-v"], ["--json"]):
        text = run(mtl_broker, "tail", "orders", *options).decode()
        assert text.count("\n") == len(BODIES)
        assert printable(text, keep="\n\t") == text
    assert run(mtl_broker, "tail", "orders", "--raw") == b"".join(body + b"\n" for body in BODIES)
    assert run(mtl_broker, "consume", "orders", "-n", "1", "--raw") == BODIES[0] + b"\n"
    for command in ("tail", "consume"):
        assert b"--raw writes bodies only" in run(mtl_broker, command, "orders", "--raw", "--json", code=1)


@pytest.mark.parametrize("name", ["[/x]", "[bold]b", ":smile:"])
def test_names_are_escaped_and_not_markup(mtl_broker: RunningBroker, name: str) -> None:
    with mtl.connect(mtl_broker.endpoint) as connection:
        connection.create_resource(name)
        with connection.reader(name, group=name):
            for command in (["resource", "list"], ["resource", "describe", name], ["cursors"]):
                assert printable(name) in run(mtl_broker, *command).decode()
    assert printable(name).encode() in run(mtl_broker, "resource", "create", name, code=1)


@pytest.mark.parametrize(
    "arguments",
    [
        ["user", "add", "etl", "hunter22"],
        ["user", "password", "etl", "hunter22", "again"],
        ["keys", "mine", "hunter22"],
        ["--user", "etl", "--password=hunter22", "resource", "list"],
        ["version", "hunter22"],
    ],
)
def test_an_argument_that_may_be_a_password_is_hidden(arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mtl.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert done.returncode == 2
    assert "hunter22" not in done.stdout + done.stderr
    assert "password" in done.stderr
