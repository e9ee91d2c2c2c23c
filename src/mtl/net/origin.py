"""Who a message came from, as far as the transport knows."""

from __future__ import annotations

from typing import NamedTuple


class Origin(NamedTuple):
    """`address` is the peer's (empty where the transport has none), `key` the CURVE public key in Z85 that it proved to
    have (empty without CURVE).
    """

    address: str = ""
    key: str = ""


NOBODY = Origin()
"""Where nothing is known."""
