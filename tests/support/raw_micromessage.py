"""MicroMessage2 peers that send what the test says and read nothing after the handshake."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from mtl.doors.addresses import host_and_port
from mtl.doors.micromessage.codec import CommandFrame, encode
from mtl.doors.micromessage.negotiation import Extension, ExtensionOffer
from mtl.doors.micromessage.session import MicroRole, MicroSession, MicroState

OFFER = ExtensionOffer((Extension("pub-sub"),))


@asynccontextmanager
async def micromessage_peer(
    endpoint: str, octets: bytes, tls: ssl.SSLContext | None = None
) -> AsyncIterator[None]:
    """A connection that sends these octets after its handshake, without acknowledgements."""
    reader, writer = await asyncio.open_connection(*host_and_port(endpoint), ssl=tls, limit=1)
    try:
        session = MicroSession(MicroRole.CLIENT, OFFER, "raw")
        writer.write(session.to_send())
        while session.state is MicroState.PROPOSED:
            session.received(await reader.readexactly(1))
        assert session.state is MicroState.OPEN
        writer.write(session.to_send() + octets)
        yield
    finally:
        writer.transport.abort()


def subscribe_from_earliest(topics: Sequence[str]) -> bytes:
    """The commands that subscribe to all contents of these topics."""
    return b"".join(
        encode(CommandFrame("subscribe", {"destination": f"topic/{topic}", "from": "earliest"}))
        for topic in topics
    )
