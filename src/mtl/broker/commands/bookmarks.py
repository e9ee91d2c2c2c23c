"""Sealed bookmarks of pages: the member `continue` of a list's page (PROTOCOL.md 2.4).

A page ends after the last name that was compared with the client's rights, which may be a name that the client must
not know. So the place is encrypted, and padded, because its length would tell something, too. A bookmark is valid until
the secret of the data directory changes.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable, Sequence
from hashlib import blake2b, shake_256
from typing import Final

import msgspec

from mtl.errors import Refused
from mtl.wire.control import BAD_ARGUMENTS

_NONCE: Final = 12
_MAC: Final = 16
_PADDING: Final = 256
"""The octets of a place are filled up to a multiple of this number."""

_TEXT: Final = 252
"""Characters of one text of a sealed bookmark: a text in a request has at most 255, and BASE64 has groups of 4."""


class Bookmarks:
    """Seals and opens places with one secret. `random` returns random octets."""

    def __init__(self, secret: bytes, random: Callable[[int], bytes]) -> None:
        self._secret = blake2b(secret or random(32), person=b"mtl bookmarks").digest()
        self._random = random

    def seal(self, place: Sequence[str]) -> list[str]:
        """The place as texts for a client."""
        octets = msgspec.json.encode(place)
        octets = octets.ljust(-(-len(octets) // _PADDING) * _PADDING)
        nonce = self._random(_NONCE)
        sealed = nonce + self._crypt(nonce, octets)
        text = base64.urlsafe_b64encode(sealed + self._mac(sealed)).decode()
        return [text[at : at + _TEXT] for at in range(0, len(text), _TEXT)]

    def open(self, bookmark: Sequence[str]) -> list[str]:
        """The place of a bookmark. Raises `Refused` 400 for one that this broker did not seal."""
        try:
            octets = base64.b64decode("".join(bookmark), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            octets = b""
        sealed, mac = octets[:-_MAC], octets[-_MAC:]
        if not hmac.compare_digest(mac, self._mac(sealed)):
            raise Refused(
                400,
                BAD_ARGUMENTS,
                "continue is not that of a page of this broker; send the request without it for the first page",
            )
        nonce, crypted = sealed[:_NONCE], sealed[_NONCE:]
        return msgspec.json.decode(self._crypt(nonce, crypted), type=list[str])

    def _crypt(self, nonce: bytes, octets: bytes) -> bytes:
        """Encrypt or decrypt, by a key stream of SHAKE-256."""
        stream = shake_256(self._secret + nonce).digest(len(octets))
        mixed = int.from_bytes(octets, "big") ^ int.from_bytes(stream, "big")
        return mixed.to_bytes(len(octets), "big")

    def _mac(self, sealed: bytes) -> bytes:
        return blake2b(sealed, key=self._secret, digest_size=_MAC).digest()
