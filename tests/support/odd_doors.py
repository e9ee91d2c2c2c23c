"""Doors with one odd message: the table of what the other end may send wrongly to a client of a door, at each step.

A door answers the opening of a connection, or sends the oddity instead; or it sends the oddity after the opening. Then
it closes the connection, and all later ones at once. `ODD` has the messages of each protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_websocket
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from mtl.doors.mbws import codec as mbws
from mtl.doors.mbws.session import MBWS
from mtl.doors.micromessage import codec as micromessage
from mtl.doors.micromessage.negotiation import PUB_SUB, Extension, ExtensionOffer, batch_ack
from mtl.doors.reactive import codec as reactive

CONNECTIONS = 2
"""Connections that a client of MBWS opens: one for its writers, and one for its reader."""

STEPS = ("opening", "open")
"""The oddity is sent instead of the answer to the opening, or after it."""


def _handshake(**lists: Sequence[Extension]) -> bytes:
    return micromessage.encode_handshake(
        ExtensionOffer(**{n: tuple(x) for n, x in lists.items()}).handshake("odd")
    )


_AGREED = (batch_ack(100), Extension(PUB_SUB))
_BINARY = mbws.Kind.BINARY

OPENINGS: dict[str, bytes] = {
    "micromessage": _handshake(required=_AGREED),
    "reactive": reactive.encode(reactive.ServerHello()),
}
MBWS_OPENING = mbws.encode(mbws.Connect("one", ()), _BINARY)

_ANYTHING: dict[str, bytes] = {
    "nothing": b"",
    "one zero": b"\0",
    "zeros": bytes(100),
    "ones": b"\xff" * 100,
    "a web server": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
    "a greeting": b"220 mail ESMTP\r\n",
}

ODD: dict[str, dict[str, bytes | str]] = {
    "mbws": {
        **_ANYTHING,
        "text": "hello",
        "empty text": "",
        "a connect without a name": mbws.encode(mbws.Connect("", ()), _BINARY),
        "a connect with numbers": mbws.encode(mbws.Connect("one", (1, 2, 3)), _BINARY),
        "a connect again": MBWS_OPENING,
        "an acknowledgement of nothing": mbws.encode(mbws.Acknowledge(0), _BINARY),
        "an acknowledgement of what was not sent": mbws.encode(mbws.Acknowledge(1 << 40), _BINARY),
        **{f"cut after {at}": MBWS_OPENING[:at] for at in range(1, len(MBWS_OPENING))},
    },
    "micromessage": {
        **_ANYTHING,
        "an unknown extension": _handshake(required=[Extension("x-odd")]),
        "nothing agreed": _handshake(),
        "a window of none": _handshake(required=[Extension("batch-ack", {"max-count": "0"})]),
        "a window of text": _handshake(required=[Extension("batch-ack", {"max-count": "many"})]),
        "an extension twice": _handshake(required=[Extension("ack"), Extension("ack")]),
        "a handshake again": OPENINGS["micromessage"],
        "an error": micromessage.encode(micromessage.Error("odd")),
        "a command": micromessage.encode(micromessage.CommandFrame("odd", {"a": "b"})),
        "an unknown frame": micromessage.encode(micromessage.ExtensionFrame(77, b"odd")),
        "a short acknowledgement": micromessage.encode(micromessage.ExtensionFrame(1, b"\0")),
        "an acknowledgement of nothing": micromessage.encode(micromessage.ExtensionFrame(1, b"\0\0")),
        "an acknowledgement of what was not sent": micromessage.encode(
            micromessage.ExtensionFrame(1, b"\x40\x40")
        ),
        **{
            f"the handshake cut after {at}": OPENINGS["micromessage"][:at]
            for at in range(1, len(OPENINGS["micromessage"]), 5)
        },
    },
    "reactive": {
        **_ANYTHING,
        "another version": reactive.encode(reactive.ServerHello(version=7)),
        "the hello of a client": reactive.encode(reactive.ClientHello()),
        "a hello again": OPENINGS["reactive"],
        "a goodbye": reactive.encode(reactive.Goodbye("odd")),
        "an answer to no goodbye": reactive.encode(reactive.GoodbyeAck()),
        "a demand for nothing": reactive.encode(reactive.RequestMore(9, 5)),
        "a subscription to nothing": reactive.encode(reactive.Subscribe("odd", 0, 1)),
        "an element of no stream": reactive.encode(reactive.OnNext(70, b"odd")),
        **{
            f"{name}, of our stream": reactive.encode(reactive.Subscribed(0)) + octets
            for name, octets in {
                "an element without a sequence": reactive.encode(reactive.OnNext(0, b"odd")),
                "an empty element": reactive.encode(reactive.OnNext(0, b"")),
                "no elements": reactive.encode(reactive.OnNexts(0, ())),
                "an element above the demand": reactive.encode(reactive.OnNext(0, bytes(9))) * 100_000,
                "subscribed twice": reactive.encode(reactive.Subscribed(0)),
                "an end": reactive.encode(reactive.OnComplete(0)),
                "an error": reactive.encode(reactive.OnError(0, "odd")),
                "two ends": reactive.encode(reactive.OnComplete(0)) * 2,
                "a part": reactive.encode(reactive.OnNextPart(0, 1, b"odd")),
            }.items()
        },
    },
}


NAMED: dict[str, dict[str, str]] = {
    "mbws": {
        "a web server, instead of the opening": "did not send MBWS: there is no frame 72",
        "text, after the opening": "there is no frame 'he'",
        "a connect without a name, instead of the opening": "has no name",
        "a connect again, after the opening": "no Connect is expected",
        "an acknowledgement of what was not sent, after the opening": "is the last that was sent",
        "cut after 3, after the opening": "ends in the middle",
    },
    "micromessage": {
        "zeros, instead of the opening": "version 0.0",
        "an unknown extension, instead of the opening": "x-odd is not supported",
        "a window of none, instead of the opening": "batch-ack of '0'",
        "an extension twice, instead of the opening": "listed twice",
        "ones, after the opening": "no frame with flags 255",
        "an acknowledgement of what was not sent, after the opening": "not outstanding",
    },
    "reactive": {
        "a web server, instead of the opening": "did not send Reactive Streams: there is no message type 72",
        "another version, instead of the opening": "version 7",
        "the hello of a client, instead of the opening": "ClientHello before ServerHello",
        "a hello again, after the opening": "a second hello",
        "an answer to no goodbye, after the opening": "without a goodbye",
        "an element without a sequence, of our stream, after the opening": "less than 8 octets",
        "an empty element, of our stream, after the opening": "less than 8 octets",
        "an element above the demand, of our stream, after the opening": "more elements than were requested",
        "subscribed twice, of our stream, after the opening": "subscribed twice",
    },
}
"""A part of the errors' text for messages that are malformed."""


@dataclass
class OddDoor:
    """The script of one door."""

    protocol: str
    step: str
    odd: bytes | str
    connections: int = 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[str]:
        """Serves during the block; yields the endpoint for the protocol's client."""
        if self.protocol == "mbws":
            async with serve_websocket(
                self._websocket, "127.0.0.1", 0, subprotocols=[Subprotocol(MBWS)], close_timeout=0.1
            ) as server:
                yield f"ws://127.0.0.1:{next(iter(server.sockets)).getsockname()[1]}"
        else:
            async with await asyncio.start_server(self._stream, "127.0.0.1", 0) as listening:
                yield f"127.0.0.1:{listening.sockets[0].getsockname()[1]}"

    def _is_first(self) -> bool:
        self.connections += 1
        return self.connections <= CONNECTIONS

    async def _websocket(self, socket: ServerConnection) -> None:
        try:
            if self._is_first():
                await socket.recv()
                if self.step == "open":
                    await socket.send(MBWS_OPENING)
                await socket.send(self.odd)
            socket.transport.abort()
        except ConnectionClosed:
            pass  # the client has ended it

    async def _stream(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert isinstance(self.odd, bytes)
        try:
            if self._is_first():
                await reader.read(1 << 16)
                if self.step == "open":
                    writer.write(OPENINGS[self.protocol])
                    await reader.read(1 << 16)  # the last handshake, or the first subscription
                writer.write(self.odd)
                await writer.drain()
        except OSError:
            pass  # the client has ended it
        finally:
            writer.close()


def odd_doors(protocol: str) -> dict[str, OddDoor]:
    """A door for each oddity at each step, by its name."""
    return {
        f"{name}, {'instead of' if step == 'opening' else 'after'} the opening": OddDoor(protocol, step, odd)
        for step in STEPS
        for name, odd in ODD[protocol].items()
    }
