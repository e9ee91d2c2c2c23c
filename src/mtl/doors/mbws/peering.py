"""Message brokers as peers: MBWS also connects brokers, one of which is the client.

A door with `peers` in its configuration connects to the MBWS doors of other brokers and sends them contents of its own
broker's resources, to addresses of the same names. For the same contents in two brokers, each has the other as peer;
with three, each has the two others.

    resource ──► reader of a group ──► MBWS connection ──► the peer's door ──► its broker
                  ◄── confirm ─────────── Acknowledge ◄───────────

Order: the contents of one resource arrive in the order of its log. Loss: none. The position is the durable cursor of
the group `mbws-peer-NAME`, which moves when the peer has acknowledged; unsent contents wait in the log until retention
removes them. Repetition: none after a network failure or a restart of the peer's door, since the connection is
recovered; when this door ends, unconfirmed contents are sent again. A content that was sent has the property
`mbws-source` with the incarnation of its resource and its sequence, which identifies a repetition.

A content with that property came from a peer and is not forwarded, so there are no loops.

Rights: the door's own user reads the resources and holds the groups; this door's user at the peer writes there.
Contents that the peer cannot deliver become its dead letters. Contents that MBWS cannot express are skipped, with a
line in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from mtl.client.contents import Content
from mtl.doors.bridge import Bridge
from mtl.doors.identity import Basic, Bearer
from mtl.doors.limits import (
    DOOR_READER_CONTENTS,
    DOOR_READER_OCTETS,
    MBWS_PEER_AGAIN_S,
    MBWS_PEER_CONTENTS,
    MBWS_PEER_PATIENCE_S,
)
from mtl.doors.mbws import client as mbws
from mtl.doors.peers import PeerConfig
from mtl.doors.websocket_client import basic, bearer
from mtl.errors import ContentTooLarge, FieldError, MtlError
from mtl.wire.fields import RESERVED, Value

log = logging.getLogger("mtl.doors.mbws")

GROUP = "mbws-peer-"
"""Prefix of the groups' names; the peer's name follows."""

SOURCE = "mbws-source"
"""The property of contents that came from a peer."""


class Peering:
    """See the module. `bridge` is the door's own way to its broker."""

    def __init__(self, peers: Mapping[str, PeerConfig], bridge: Bridge) -> None:
        self._peers = peers
        self._bridge = bridge
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Start sending. Raises `OptionError` for secrets or authorities that cannot be read."""
        for name, peer in self._peers.items():
            peer.tls()
            _authorization(peer)
            for resource in peer.send:
                self._tasks.add(asyncio.create_task(self._send_forever(name, peer, resource)))

    async def stop(self) -> None:
        """Stop sending; the next door sends unconfirmed contents."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _send_forever(self, name: str, peer: PeerConfig, resource: str) -> None:
        """Send one resource's contents to one peer, until cancelled."""
        last_error = ""
        while True:
            try:
                await self._send(name, peer, resource)
            except MtlError as error:
                if str(error) != last_error:
                    log.warning(
                        "contents of %r do not reach the peer %r: %s; the door tries again every %.0f s",
                        *(resource, name, error, MBWS_PEER_AGAIN_S),
                    )
                    last_error = str(error)
            await asyncio.sleep(MBWS_PEER_AGAIN_S)

    async def _send(self, name: str, peer: PeerConfig, resource: str) -> None:
        connection = await self._bridge.connection()
        source = connection.reader(
            resource,
            group=GROUP + name,
            skip_lost=True,
            window_contents=DOOR_READER_CONTENTS,
            window_bytes=DOOR_READER_OCTETS,
        )
        target = mbws.connect(
            peer.url,
            tls=peer.tls(),
            authorization=_authorization(peer),
            retry_deadline=MBWS_PEER_PATIENCE_S,
        )
        async with source as reader, target as client, client.writer(resource) as writer:
            while contents := await reader.some(MBWS_PEER_CONTENTS, DOOR_READER_OCTETS):
                for content in contents:
                    await _send_content(writer, content, reader.incarnation)
                await writer.flush()
                await reader.confirm(contents[-1].sequence)


def _authorization(peer: PeerConfig) -> str | None:
    match peer.credentials():
        case Basic(user, password):
            return basic(user, password)
        case Bearer(token):
            return bearer(token)
    return None


async def _send_content(writer: mbws.MbwsWriter, content: Content, incarnation: str | None) -> None:
    """Send a content that is this broker's own."""
    if SOURCE in content.properties:
        return
    own = {name: value for name, value in content.properties.items() if not name.startswith(RESERVED)}
    source: dict[str, Value] = {SOURCE: f"{incarnation}/{content.sequence}"}
    try:
        await writer.send(content.body, own | source)
    except (ContentTooLarge, FieldError) as unfit:
        log.warning("%s: content %d is not sent to a peer: %s", content.resource, content.sequence, unfit)
