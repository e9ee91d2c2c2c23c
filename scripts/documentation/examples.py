"""An example of every command of the protocol: data commands as octets, requests and replies as JSON. Pure.

They are encoded by `mtl.wire`, so they agree with the sent octets.
"""

from __future__ import annotations

import msgspec

from mtl.wire import commands as c
from mtl.wire import control as w
from mtl.wire.fields import encode_table

INCARNATION = "b4f1c0de5a7e4d10"
LEASE = "5f0c1b2a9d8e7f605f0c1b2a9d8e7f60"
STAGE = "e2d4c6b8a0f1e3d5"
EPOCH = "3.9c2d41aa"
SESSION = "1f2e3d4c5b6a79880f1e2d3c4b5a6978"
AT = 1_764_000_000_000_000
"""A time, in microseconds since 1970."""

DATA: tuple[tuple[str, c.Command], ...] = (
    ("Lease 1 with the token `abcd`", c.Lease(1, "abcd")),
    ("Response to 1: 200", c.Response(1, 200)),
    ("Summon 2 of `orders`", c.Summon(2, "orders")),
    ("Dismiss 3 of `orders`", c.Dismiss(3, "orders")),
    ("Content 7 of `orders`, no properties, body `hi`", c.Content(7, "orders", encode_table({}), b"hi")),
    (
        "Content 8 of `orders`, property `kind` = `new`, body `hi`",
        c.Content(8, "orders", encode_table({"kind": "new"}), b"hi"),
    ),
    ("Confirm 8, multiple", c.Confirm(8, multiple=True)),
    ("Reject 8, single, recycle", c.Reject(8, multiple=False, recycle=True)),
    ("Ping", c.Ping()),
    ("Pong", c.Pong()),
    ("Pong to the holder of a group at position 9", c.Pong(9)),
)

_RETENTION = w.Retention(bytes=10 << 30, age=604_800.0)
_DESCRIPTION = w.Description(
    resource="orders",
    incarnation=INCARNATION,
    known_earliest=1,
    known_next=9,
    log_epoch=EPOCH,
    bytes=704,
    contents=8,
    oldest_time=AT,
    newest_time=AT + 5_000_000,
    retention=_RETENTION,
)
_STAGE = w.StageInfo(
    stage=STAGE,
    application="copy",
    version=4,
    state="sealed",
    contents={"orders": 3},
    bytes=256,
    created=AT,
    expires=AT + 86_400_000_000,
)
_PUBLISHED = {"orders": w.Published(first=9, contents=3)}
_DIGEST = {"rows": "3", "contents": "9c1d5a06e2b4f781"}

CONTROL: tuple[tuple[w.Request, w.Reply], ...] = (
    (
        w.ConnectionOpen(protocol=w.Protocol(), virtual_host="/"),
        w.Ready(
            profiles=["test", "log", "queue"],
            session=SESSION,
            boot="70f1",
            max_content=4 << 20,
            max_pack=4 << 20,
            heartbeat=5.0,
        ),
    ),
    (
        w.ConnectionAuthorize(session=SESSION, mechanism="PLAIN", response="AGV0bABzZWNyZXQ="),
        w.Ready(profiles=["test", "log", "queue"], session=SESSION),
    ),
    (w.ConnectionProfile(session=SESSION, profile="log"), w.Ok()),
    (
        w.ConnectionReader(
            session=SESSION,
            resources=["orders"],
            confirm="full",
            packed=True,
            from_="earliest",
            until=9,
            window=w.Window(contents=1_000, bytes=8 << 20),
        ),
        w.DataLease(
            port=5976,
            lease=LEASE,
            packed=True,
            from_=1,
            until=9,
            window=w.Window(contents=1_000, bytes=8 << 20),
            incarnation=INCARNATION,
            earliest=1,
            next=9,
            history=((1, EPOCH),),
        ),
    ),
    (
        w.ConnectionWriter(
            session=SESSION, resources=["orders"], confirm="full", packed=True, writer="till-1"
        ),
        w.DataLease(port=5976, lease=LEASE, packed=True, last={"orders": 0}, epoch=1),
    ),
    (
        w.LeaseClose(session=SESSION, lease=LEASE),
        w.LeaseClosed(stage=w.StageSealed(stage=STAGE, contents={"orders": 3}, bytes=256)),
    ),
    (
        w.ResourceCreate(session=SESSION, resource="orders", retention=_RETENTION),
        w.ResourceCreated(resource=_DESCRIPTION),
    ),
    (w.ResourceList(session=SESSION, pattern="orders.*"), w.DescriptionList(resources=[_DESCRIPTION])),
    (
        w.ResourceDescribe(session=SESSION, resource="orders", since="70f1.8", wait=30_000),
        w.DescriptionList(resources=[_DESCRIPTION], removed=[], state="70f1.9"),
    ),
    (w.ResourceDelete(session=SESSION, resource="orders", incarnation=INCARNATION), w.Ok()),
    (
        w.ResourceLocate(session=SESSION, resource="orders", timestamp=AT),
        w.Located(sequence=1, timestamp=AT),
    ),
    (
        w.CursorOpen(session=SESSION, group="etl", resource="orders", from_="earliest"),
        w.CursorOpened(position=1, created=True, incarnation=INCARNATION),
    ),
    (
        w.CursorDescribe(session=SESSION, group="etl", resource="orders"),
        w.CursorList(
            cursors=[
                w.CursorInfo(
                    group="etl",
                    resource="orders",
                    incarnation=INCARNATION,
                    position=6,
                    next=9,
                    behind=3,
                    bytes_behind=256,
                    seconds_behind=1.5,
                    held=True,
                    epoch=2,
                    log_epoch=EPOCH,
                )
            ]
        ),
    ),
    (
        w.CursorReset(session=SESSION, group="etl", resource="orders", to="earliest"),
        w.CursorWasReset(position=1, before=6, incarnation=INCARNATION),
    ),
    (w.CursorDelete(session=SESSION, group="etl", resource="orders"), w.Ok()),
    (
        w.QueueDescribe(session=SESSION, group="default", resource="orders"),
        w.QueueList(
            queues=[
                w.QueueInfo(
                    group="default",
                    resource="orders",
                    incarnation=INCARNATION,
                    position=5,
                    next=9,
                    unsettled=4,
                    ready=3,
                    delivered=1,
                    consumers=1,
                    dead_letter="orders.dead",
                    max_deliveries=10,
                )
            ]
        ),
    ),
    (w.QueueDelete(session=SESSION, group="default", resource="orders"), w.Ok()),
    (
        w.StageCommit(
            session=SESSION, application="copy", version=4, stages=[STAGE], query="q-1", digest=_DIGEST
        ),
        w.Committed(resources=_PUBLISHED, digest=_DIGEST),
    ),
    (w.StageAbort(session=SESSION, stages=[STAGE]), w.Ok()),
    (
        w.StageDescribe(session=SESSION, application="copy"),
        w.StageList(
            stages=[_STAGE],
            applications=[
                w.ApplicationInfo(
                    application="copy", version=3, query="q-1", resources=_PUBLISHED, committed=AT
                )
            ],
        ),
    ),
    (w.StageForget(session=SESSION, application="copy"), w.Ok()),
)


def data_commands() -> str:
    """A row for each data command: its header and its body in hexadecimal."""
    lines = ["| command | header | body |", "|---|---|---|"]
    for meaning, command in DATA:
        header, body = (bytes(frame).hex() for frame in c.encode(command))
        lines.append(f"| {meaning} | `{header}` | {f'`{body}`' if body else 'empty'} |")
    return "\n".join(lines)


def requests() -> str:
    """A section for each command of the control flow: the request's body, and the reply's code and body."""
    return "\n\n".join(
        f"### {request.command}\n\n```json\n{_json(request)}\n```\n\n"
        f"{reply.code}:\n\n```json\n{_json(reply)}\n```"
        for request, reply in CONTROL
    )


def _json(body: w.Body) -> str:
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode()
