"""The SASL mechanisms of this project, and the BASE64 of their messages in RFC 11 (MTL-30, MTL-32)."""

from __future__ import annotations

import base64
import binascii
from importlib.util import find_spec
from typing import Final

from mtl.errors import Malformed

ANONYMOUS: Final = "ANONYMOUS"
"""RFC 4505: the client gives a name for traces, without proof."""

PLAIN: Final = "PLAIN"
"""RFC 4616: user and password in clear text."""

SCRAM: Final = "SCRAM-SHA-256"
"""RFC 5802, RFC 7677: both sides prove that they know the password (or its verifier), and neither sends it."""

EXTERNAL: Final = "EXTERNAL"
"""RFC 4422 A: the connection itself proves the client's identity, here the user with its CURVE key."""

BY_STRENGTH: Final = (EXTERNAL, SCRAM, PLAIN, ANONYMOUS)
"""Strongest first: the order in which a client chooses."""

WITH_PASSWORD: Final = frozenset({SCRAM, PLAIN})


def scram_available() -> bool:
    """Whether the extra `scram` is installed."""
    return find_spec("scramp") is not None


def encode(octets: bytes) -> str:
    """Octets as BASE64 text."""
    return base64.b64encode(octets).decode()


def decode(text: str) -> bytes:
    """The octets of BASE64 text. Raises `Malformed` for anything else."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise Malformed(f"this is not BASE64: {error}") from error


def text_of(octets: bytes) -> str:
    """The octets as UTF-8 text. Raises `Malformed` for anything else."""
    try:
        return octets.decode()
    except UnicodeDecodeError as error:
        raise Malformed("a SASL message that is not UTF-8") from error
