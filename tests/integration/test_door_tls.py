"""Doors on TCP with TLS and a real broker, each with its client. Doors on WebSocket have their own tests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mtl.doors.addresses import host_and_port
from mtl.doors.micromessage import client as micromessage
from mtl.doors.reactive import client as reactive
from mtl.errors import Refused, Unreachable
from mtl.testing import RunningBroker
from tests.support.aio import in_loop, until
from tests.support.doors import BODIES, door
from tests.support.tls import Certificates

ANYWHERE = "127.0.0.1:0"


def patient(endpoint: str, seconds: float, **options: Any) -> Any:
    """The parameters that the two clients name differently."""
    return reactive.connect(endpoint, timeout=seconds, **options)


def trying(endpoint: str, seconds: float, **options: Any) -> Any:
    return micromessage.connect(endpoint, retry_deadline=seconds, **options)


@pytest.mark.parametrize(
    ("name", "connect", "resource"),
    [("reactive", patient, "orders"), ("micromessage", trying, "topic/orders")],
)
@pytest.mark.requirement("RS-02")
@in_loop
async def test_a_door_with_a_certificate_accepts_only_tls(
    mtl_broker: RunningBroker, tmp_path: Path, name: str, connect: Callable[..., Any], resource: str
) -> None:
    files = Certificates(tmp_path)
    opening = door(
        name, mtl_broker.endpoint, ANYWHERE, certificate_file=files.certificate, key_file=files.key
    )
    async with opening as (opened, _):
        async with (
            connect(opened.endpoint, 10.0, tls=files.trusting) as c,
            c.reader(resource, start="earliest") as r,
            c.writer(resource) as w,
        ):
            for body in BODIES:
                await w.send(body)
            assert [(await r.next()).body for _ in BODIES] == BODIES
        await until(lambda: not opened.peers)  # type: ignore[attr-defined]
        with pytest.raises(Refused, match="untrusted"):
            await connect(opened.endpoint, 10.0, tls=Certificates(tmp_path).trusting)
        with pytest.raises(Unreachable):
            await connect(opened.endpoint, 0.5)
        reader, writer = await asyncio.open_connection(*host_and_port(opened.endpoint))
        writer.write(b"\0" * 16)  # a client's hello, where a handshake of TLS is expected
        assert not (await reader.read()).startswith(b"\1\0")
        writer.close()
        await writer.wait_closed()
