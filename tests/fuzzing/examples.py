"""Well-formed inputs that mutation begins with: the golden vectors and files, and one of every request and reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

from mtl.wire import control
from mtl.wire.fields import encode_table
from mtl.wire.packs import encode_pack

GOLDEN = Path(__file__).parents[1] / "golden"


def framed(header: bytes, body: bytes) -> bytes:
    return len(header).to_bytes(2, "big") + header + body


TABLES = (
    encode_table({}),
    encode_table({"foo": "bar"}),
    encode_table(
        {"t": True, "l": -1, "d": 1.5, "x": b"\0", "T": datetime(2026, 1, 1, tzinfo=UTC), "V": None}
    ),
    encode_table({"D": Decimal("1.25"), "A": [1, "two", [3.0]], "F": {"F": {"F": {}}}}),
    bytes.fromhex("0000001a 0162 6201 0142 42ff 0173 73ffff 0175 75ffff 0149 49ffffffff".replace(" ", "")),
)

# RFC 11's commands as in the golden vectors.
COMMANDS = tuple(
    framed(bytes.fromhex(header), bytes.fromhex(body))
    for header, body in (
        ("0100000000000000010461626364", ""),
        ("020000000000000001", "323030"),
        ("030000000000000002087265736f75726365", ""),
        ("040000000000000003087265736f75726365", ""),
        ("050000000000000007087265736f7572636500000000", "6869"),
        ("050000000000000007000000000c03666f6f5300000003626172", "6869"),
        ("06000000000000000701", ""),
        ("0700000000000000070001", ""),
        ("08", ""),
        ("09", ""),
        ("05000000000000000701610000001309 6d746c2d636f756e74 6c 0000000000000003".replace(" ", ""), "00"),
    )
)

_WINDOW = control.Window(contents=1, bytes=2)
_RETENTION = control.Retention(bytes=1, age=2.5, contents=3, groups=("g",), hard_bytes=4)
_STAGE = control.StageSpec(application="a", version=1, id="i")

REQUESTS = tuple(
    b"\n".join(control.encode_request(request))
    for request in (
        control.ConnectionOpen(protocol=control.Protocol(), virtual_host="/"),
        control.ConnectionAuthorize(mechanism="PLAIN", response="AGEAYg=="),
        control.ConnectionProfile(profile="log", session="0123"),
        control.ConnectionReader(
            resources=["a"], confirm="full", from_="earliest", until=9, window=_WINDOW, packed=True
        ),
        control.ConnectionReader(resources=["a"], from_=7, group="g", holder="h", epoch=1, incarnation="i"),
        control.ConnectionWriter(resources=[], confirm="none", packed=True, writer="w", holder="h", epoch=1),
        control.ConnectionWriter(resources=["a"], stage=_STAGE, incarnations={"a": "i"}),
        control.LeaseClose(lease="l"),
        control.ResourceCreate(resource="a", durability="os", retention=_RETENTION, exist_ok=True),
        control.ResourceList(pattern="a.*", continue_=["a"]),
        control.ResourceDescribe(resources=["a", "b"], missing_ok=True, since="b.1", wait=1000),
        control.ResourceDelete(resource="a", incarnation="i"),
        control.ResourceLocate(resource="a", timestamp=1),
        control.ResourceLocate(resource="a", start=1, contents=2, bytes=3),
        control.CursorOpen(group="g", resource="a", from_="latest"),
        control.CursorDescribe(group="g"),
        control.CursorReset(group="g", resource="a", to=7),
        control.CursorReset(group="g", resource="a", timestamp=9, force=True),
        control.CursorDelete(group="g", resource="a"),
        control.StageCommit(application="a", version=1, stages=["s"], query="q"),
        control.StageAbort(stages=["s"]),
        control.StageDescribe(application="a"),
        control.StageForget(application="a"),
    )
)

_DESCRIPTION = control.Description(
    resource="a", incarnation="i", known_earliest=1, known_next=2, retention=_RETENTION
)
_SEALED = control.StageSealed(stage="s", contents={"a": 1}, bytes=2)

REPLIES = (
    *(
        command.encode() + b" " + b"\n".join(control.encode_reply(reply.code, reply))
        for command, reply in (
            (
                "Connection.Open",
                control.Ready(profiles=["log"], session="s", boot="b", max_content=1, heartbeat=5.0),
            ),
            ("Connection.Open", control.Unauthorized(mechanisms=["PLAIN"])),
            ("Connection.Authorize", control.Challenged(mechanism="SCRAM-SHA-256", challenge="YQ==")),
            (
                "Connection.Reader",
                control.DataLease(port=1, lease="l", from_=1, window=_WINDOW, epoch=1, position=2),
            ),
            (
                "Connection.Writer",
                control.DataLease(port=1, lease="l", last={"a": 1}, stage="s", incarnations={"a": "i"}),
            ),
            ("Lease.Close", control.LeaseClosed(stage=_SEALED)),
            ("Resource.Create", control.ResourceCreated(resource=_DESCRIPTION)),
            ("Resource.Describe", control.DescriptionList(resources=[_DESCRIPTION])),
            ("Resource.Locate", control.Located(sequence=1, timestamp=2)),
            ("Cursor.Open", control.CursorOpened(position=1, created=True, incarnation="i")),
            ("Cursor.Reset", control.CursorWasReset(position=1, before=2, incarnation="i")),
            (
                "Stage.Commit",
                control.Committed(
                    resources={"a": control.Published(first=1, contents=2)}, digest={"rows": "2"}
                ),
            ),
        )
    ),
    b'Connection.Reader 404\n{"status":"Not Found","reason":"unknown-resource","message":"m","missing":["a"]}',
    b'Connection.Reader 409\n{"status":"Conflict","reason":"fenced","message":"m"}',
    b'Connection.Reader 409\n{"reason":"data-loss","resource":"a","first":1,"end":2,"message":"m"}',
)

MEMBERS = tuple(
    sorted({name.encode() for kind in control.REQUESTS.values() for name in kind.__struct_encode_fields__})
) + tuple(sorted(kind.command.encode() for kind in control.REQUESTS.values()))
"""The names of members and commands."""


def pack(*contents: tuple[bytes | None, bytes]) -> bytes:
    octets = encode_pack([body for _, body in contents], [table for table, _ in contents])
    return len(contents).to_bytes(2, "big") + bytes(octets)


PACKS = (
    pack((None, b"")),
    pack((None, b"one"), (None, b"two"), (None, b"three")),
    pack((encode_table({"k": "v"}), b"one"), (None, b""), (encode_table({"n": 1}), b"x" * 100)),
)

NAMES = ("", "orders", "orders-2026", "a" * 255, "é", "x\ny")
PATTERNS = (b"", b"orders.*", b"(a|b)*c", b"[^x]{1,30}", rb"\p{L}+\d?(?i:A)", b"(a+)+$", b"((a{9}){9}){9}")


def match(matching: Callable[[str, Sequence[str]], list[bool]], data: bytes) -> list[bool]:
    """As a pattern arrives: characters of a JSON string, of any kind."""
    return matching(data.decode("utf-8", "replace"), NAMES)


def lines(path: str) -> list[bytes]:
    return (GOLDEN / path).read_bytes().splitlines()


def _record(line: bytes) -> bytes:
    """Kind and value of a line that has the key between them."""
    kind, value = line.split(b" ", 1)[0], line[line.index(b" {") + 1 :]
    return kind + b"\n" + value


RECORDS = tuple(map(_record, lines("broker/records-v4.jsonl")))
OFFSETS = tuple(lines("pyspark_mtl/offsets-v1.jsonl"))
