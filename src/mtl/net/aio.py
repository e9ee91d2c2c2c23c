"""ROUTER and DEALER in an event loop, for protocols of their own frames (the front door mc0 and its client)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import cast
from uuid import uuid4

import zmq
import zmq.asyncio

from mtl import limits
from mtl.errors import OptionError
from mtl.net.curve import as_client, make_keys
from mtl.net.endpoint import Curve
from mtl.net.router import Sent, bind_router, seed_identities

_GONE = (
    zmq.EVENT_DISCONNECTED
    | zmq.EVENT_CLOSED
    | zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL
    | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
    | zmq.EVENT_HANDSHAKE_FAILED_AUTH
)
_NEVER_MS = 3_600_000
"""See `mtl.net.link`: libzmq must not reconnect before the monitor has told of the end."""


_made: tuple[int, zmq.asyncio.Context] | None = None


def _context() -> zmq.asyncio.Context:
    """This process's. Ending it would wait for every linger, so nobody does before the process ends."""
    global _made
    if _made is None or _made[0] != os.getpid():
        _made = (os.getpid(), zmq.asyncio.Context())
    return _made[1]


class AsyncRouter:
    """A bound ROUTER. `send` never waits: a full queue and a peer that is gone are answers.

    `curve_secret` is its secret key in Z85, for CURVE. Raises `BindFailed`.
    """

    def __init__(self, endpoint: str, *, hwm: int, max_frame: int, curve_secret: bytes | None = None) -> None:
        seed_identities()
        self._socket = bind_router(_context(), endpoint, hwm=hwm, max_frame=max_frame, secret=curve_secret)
        self.endpoint = self._socket.getsockopt_string(zmq.LAST_ENDPOINT)

    async def receive(self) -> list[bytes]:
        """The frames of the next message, identity first."""
        return await self._socket.recv_multipart()

    def send(self, identity: bytes, frames: Sequence[bytes]) -> Sent:
        """Send to one peer, or say why not."""
        # With DONTWAIT the future is done at once; its exception is the answer.
        sent = cast("asyncio.Future[None]", self._socket.send_multipart([identity, *frames], zmq.DONTWAIT))
        error = sent.exception()
        if error is None:
            return Sent.OK
        if isinstance(error, zmq.Again):
            return Sent.FULL
        if isinstance(error, zmq.ZMQError) and error.errno == zmq.EHOSTUNREACH:
            return Sent.GONE
        raise error

    def close(self) -> None:
        """Stop listening; what was sent leaves within the linger."""
        self._socket.close()


class AsyncDealer:
    """A DEALER that connects once; when the connection is gone, `receive` says so and it is gone for good.

    `curve_server` is the server's public key in Z85, for CURVE with a key pair of the moment.
    """

    def __init__(self, endpoint: str, *, hwm: int, max_frame: int, curve_server: bytes | None = None) -> None:
        self._socket = _context().socket(zmq.DEALER)
        # An identity that nobody guesses: the ROUTER's own are numbers in a row.
        self._socket.setsockopt(zmq.IDENTITY, uuid4().bytes)
        self._socket.setsockopt(zmq.LINGER, limits.LINGER_MS)
        self._socket.setsockopt(zmq.RECONNECT_IVL, _NEVER_MS)
        self._socket.setsockopt(zmq.SNDHWM, hwm)
        self._socket.setsockopt(zmq.RCVHWM, hwm)
        self._socket.setsockopt(zmq.MAXMSGSIZE, max_frame)
        self._socket.setsockopt(zmq.IPV6, int("[" in endpoint))
        if curve_server is not None:
            as_client(self._socket, Curve(curve_server, *make_keys()))
        self._monitor = self._socket.get_monitor_socket(_GONE)
        self._receiving: asyncio.Future[list[bytes]] | None = None
        self._gone = False
        try:
            self._socket.connect(endpoint)
        except zmq.ZMQError as error:
            self.close()
            raise OptionError(f"{endpoint!r} is no endpoint to connect to: {error}") from error
        self._watch = asyncio.create_task(self._watched())

    async def receive(self) -> list[bytes] | None:
        """The frames of the next message; None when the connection is gone and everything that came was read."""
        flags = zmq.DONTWAIT if self._gone else 0
        receiving = cast("asyncio.Future[list[bytes]]", self._socket.recv_multipart(flags))
        self._receiving = receiving
        try:
            return await receiving
        except zmq.Again:
            return None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return None
        finally:
            self._receiving = None

    def send_soon(self, frames: Sequence[bytes]) -> None:
        """Send, in order, when the queue has room; whoever sends bounds how much that is."""
        sent = cast("asyncio.Future[None]", self._socket.send_multipart(list(frames)))
        sent.add_done_callback(_without_complaint)

    def give_up(self) -> None:
        """Treat the connection as gone."""
        self._gone = True
        if self._receiving is not None:
            self._receiving.cancel()

    def close(self) -> None:
        """Drop the connection; what was sent leaves within the linger. Harmless when repeated."""
        if not self._socket.closed:
            if hasattr(self, "_watch"):
                self._watch.cancel()
            self._socket.disable_monitor()
            self._monitor.close(0)
            self._socket.close()

    async def _watched(self) -> None:
        await self._monitor.recv_multipart()  # it tells of nothing but the end
        self.give_up()


def _without_complaint(sent: asyncio.Future[None]) -> None:
    """What did not leave before the socket was closed is the sender's to send again."""
    if not sent.cancelled():
        sent.exception()
