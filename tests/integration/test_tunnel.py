"""A broker with one port, behind a tunnel with another port at the client's end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import mtl
import mtl.testing
from tests.support.cutting_proxy import Tunnel


def test_data_flows_use_the_endpoint_of_the_client(tmp_path: Path) -> None:
    config = tmp_path / "broker.toml"
    config.write_text("shared-socket = true\n")
    with mtl.testing.broker(data="memory:", config=config) as broker:
        port = int(broker.endpoint.rpartition(":")[2])
        with Tunnel(port) as tunnel, mtl.connect(tunnel.endpoint, retry_deadline=20) as connection:
            connection.create_resource("orders")
            with connection.writer("orders") as writer, connection.writer("orders", packed=True) as packed:
                writer.send(b"plain")
                writer.flush()
                packed.send(b"packed")
            bodies = [content.body for content in connection.reader("orders", until=3)]
            with connection.consumer("orders") as consumer:
                content = consumer.next(20)
            assert bodies == [b"plain", b"packed"]
            assert content is not None
            assert asyncio.run(read(tunnel.endpoint)) == b"plain"
            assert tunnel.accepted[port] >= 6


async def read(endpoint: str) -> bytes:
    async with (
        mtl.aio.connect(endpoint, retry_deadline=20) as connection,
        connection.reader("orders") as reader,
    ):
        content = await reader.next(20)
        assert content is not None
        return content.body
