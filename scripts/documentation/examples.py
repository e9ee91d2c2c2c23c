"""An example of every command of the protocol: data commands as octets, requests and replies as JSON. Pure.

They are encoded by `mtl.wire`, so they agree with the sent octets.
"""

from __future__ import annotations

import msgspec

from mtl.wire import commands, control
from mtl.wire.fields import encode_table

INCARNATION = "b4f1c0de5a7e4d10"
LEASE = "5f0c1b2a9d8e7f605f0c1b2a9d8e7f60"
STAGE = "e2d4c6b8a0f1e3d5"
EPOCH = "3.9c2d41aa"
SESSION = "1f2e3d4c5b6a79880f1e2d3c4b5a6978"
AT = 1_764_000_000_000_000
"""A time, in microseconds since 1970."""

DATA: tuple[tuple[str, commands.Command], ...] = (
    ("Lease 1 with the token `abcd`", commands.Lease(1, "abcd")),
    ("Response to 1: 200", commands.Response(1, 200)),
    ("Summon 2 of `orders`", commands.Summon(2, "orders")),
    ("Dismiss 3 of `orders`", commands.Dismiss(3, "orders")),
    (
        "Content 7 of `orders`, no properties, body `hi`",
        commands.Content(7, "orders", encode_table({}), b"hi"),
    ),
    (
        "Content 8 of `orders`, property `kind` = `new`, body `hi`",
        commands.Content(8, "orders", encode_table({"kind": "new"}), b"hi"),
    ),
    ("Confirm 8, multiple", commands.Confirm(8, multiple=True)),
    ("Reject 8, single, recycle", commands.Reject(8, multiple=False, recycle=True)),
    ("Ping", commands.Ping()),
    ("Pong", commands.Pong()),
    ("Pong to the holder of a group at position 9", commands.Pong(9)),
)

_RETENTION = control.Retention(bytes=10 << 30, age=604_800.0)
_DESCRIPTION = control.Description(
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
_STAGE = control.StageInfo(
    stage=STAGE,
    application="copy",
    version=4,
    state="sealed",
    contents={"orders": 3},
    bytes=256,
    created=AT,
    expires=AT + 86_400_000_000,
)
_PUBLISHED = {"orders": control.Published(first=9, contents=3)}
_DIGEST = {"rows": "3", "contents": "9c1d5a06e2b4f781"}

CONTROL: tuple[tuple[control.Request, control.Reply], ...] = (
    (
        control.ConnectionOpen(protocol=control.Protocol(), virtual_host="/"),
        control.Ready(
            profiles=["test", "log", "queue"],
            session=SESSION,
            boot="70f1",
            max_content=4 << 20,
            max_pack=4 << 20,
            heartbeat=5.0,
        ),
    ),
    (
        control.ConnectionAuthorize(session=SESSION, mechanism="PLAIN", response="AGV0bABzZWNyZXQ="),
        control.Ready(profiles=["test", "log", "queue"], session=SESSION),
    ),
    (control.ConnectionProfile(session=SESSION, profile="log"), control.Ok()),
    (
        control.ConnectionReader(
            session=SESSION,
            resources=["orders"],
            confirm="full",
            packed=True,
            from_="earliest",
            until=9,
            window=control.Window(contents=1_000, bytes=8 << 20),
        ),
        control.DataLease(
            port=5976,
            lease=LEASE,
            packed=True,
            from_=1,
            until=9,
            window=control.Window(contents=1_000, bytes=8 << 20),
            incarnation=INCARNATION,
            earliest=1,
            next=9,
            history=((1, EPOCH),),
        ),
    ),
    (
        control.ConnectionWriter(
            session=SESSION, resources=["orders"], confirm="full", packed=True, writer="till-1"
        ),
        control.DataLease(port=5976, lease=LEASE, packed=True, last={"orders": 0}, epoch=1),
    ),
    (
        control.LeaseClose(session=SESSION, lease=LEASE),
        control.LeaseClosed(stage=control.StageSealed(stage=STAGE, contents={"orders": 3}, bytes=256)),
    ),
    (
        control.ResourceCreate(session=SESSION, resource="orders", retention=_RETENTION),
        control.ResourceCreated(resource=_DESCRIPTION),
    ),
    (
        control.ResourceList(session=SESSION, pattern="orders.*"),
        control.DescriptionList(resources=[_DESCRIPTION]),
    ),
    (
        control.ResourceDescribe(session=SESSION, resource="orders", since="70f1.8", wait=30_000),
        control.DescriptionList(resources=[_DESCRIPTION], removed=[], state="70f1.9"),
    ),
    (control.ResourceDelete(session=SESSION, resource="orders", incarnation=INCARNATION), control.Ok()),
    (
        control.ResourceLocate(session=SESSION, resource="orders", timestamp=AT),
        control.Located(sequence=1, timestamp=AT),
    ),
    (
        control.CursorOpen(session=SESSION, group="etl", resource="orders", from_="earliest"),
        control.CursorOpened(position=1, created=True, incarnation=INCARNATION),
    ),
    (
        control.CursorDescribe(session=SESSION, group="etl", resource="orders"),
        control.CursorList(
            cursors=[
                control.CursorInfo(
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
        control.CursorReset(session=SESSION, group="etl", resource="orders", to="earliest"),
        control.CursorWasReset(position=1, before=6, incarnation=INCARNATION),
    ),
    (control.CursorDelete(session=SESSION, group="etl", resource="orders"), control.Ok()),
    (
        control.QueueDescribe(session=SESSION, group="default", resource="orders"),
        control.QueueList(
            queues=[
                control.QueueInfo(
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
    (control.QueueDelete(session=SESSION, group="default", resource="orders"), control.Ok()),
    (
        control.StageCommit(
            session=SESSION, application="copy", version=4, stages=[STAGE], query="q-1", digest=_DIGEST
        ),
        control.Committed(resources=_PUBLISHED, digest=_DIGEST),
    ),
    (control.StageAbort(session=SESSION, stages=[STAGE]), control.Ok()),
    (
        control.StageDescribe(session=SESSION, application="copy"),
        control.StageList(
            stages=[_STAGE],
            applications=[
                control.ApplicationInfo(
                    application="copy", version=3, query="q-1", resources=_PUBLISHED, committed=AT
                )
            ],
        ),
    ),
    (control.StageForget(session=SESSION, application="copy"), control.Ok()),
)


def data_commands() -> str:
    """A row for each data command: its header and its body in hexadecimal."""
    lines = ["| command | header | body |", "|---|---|---|"]
    for meaning, command in DATA:
        header, body = (bytes(frame).hex() for frame in commands.encode(command))
        lines.append(f"| {meaning} | `{header}` | {f'`{body}`' if body else 'empty'} |")
    return "\n".join(lines)


def requests() -> str:
    """A section for each command of the control flow: the request's body, and the reply's code and body."""
    return "\n\n".join(
        f"### {request.command}\n\n```json\n{_json(request)}\n```\n\n"
        f"{reply.code}:\n\n```json\n{_json(reply)}\n```"
        for request, reply in CONTROL
    )


def _json(body: control.Body) -> str:
    return msgspec.json.format(msgspec.json.encode(body), indent=2).decode()
