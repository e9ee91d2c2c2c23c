"""The origin of a message, as far as the transport knows it."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

Connection: TypeAlias = str
"""One accepted connection: a number that is unique in this process, and after a space the CURVE public key in Z85 that
its peer proved to have. Empty where the transport has no connections (inproc).

A peer chooses its ROUTER identity, possibly one whose connection has just ended. It cannot choose its connection.
"""


def key_of(connection: Connection) -> str:
    """The CURVE key of a connection's peer; empty without CURVE."""
    return connection.partition(" ")[2]


def number_of(connection: Connection) -> int:
    """The number of a connection; 0 where the transport has none."""
    return int(connection.partition(" ")[0] or 0)


class Origin(NamedTuple):
    """`address` is the peer's (empty where the transport has none)."""

    address: str = ""
    connection: Connection = ""

    @property
    def key(self) -> str:
        """The CURVE key that the peer proved to have; empty without CURVE."""
        return key_of(self.connection)


NO_ORIGIN = Origin()
"""An unknown origin."""
