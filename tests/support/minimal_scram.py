"""SCRAM-SHA-256 (RFC 5802, RFC 7677) for the minimal client, by the standard library alone."""

from __future__ import annotations

import hashlib
import hmac
import os
from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

Ask = Callable[..., tuple[int, dict[str, Any]]]


class LogInRefused(AssertionError):
    """The broker's answer to a step of the log-in was no challenge."""

    def __init__(self, code: int, answer: dict[str, Any]) -> None:
        super().__init__(f"{code} {answer}")
        self.code = code


def log_in(ask: Ask, user: str, password: str) -> str:
    """Authenticate on the client's session; the new token. `LogInRefused` for a refusal, AssertionError for a server
    that does not prove that it knows the password.
    """
    first = f"n={user},r={b64encode(os.urandom(18)).decode()}"
    challenge = _challenged(ask, f"n,,{first}")
    parts = dict(part.split("=", 1) for part in challenge.split(","))
    without = f"c=biws,r={parts['r']}"
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), b64decode(parts["s"]), int(parts["i"]))
    message = f"{first},{challenge},{without}".encode()
    key = _mac(salted, b"Client Key")
    signature = _mac(hashlib.sha256(key).digest(), message)
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    final = _challenged(ask, f"{without},p={b64encode(proof).decode()}")
    assert b64decode(final.removeprefix("v=")) == _mac(_mac(salted, b"Server Key"), message), "another server"
    code, ready = ask("Connection.Authorize", mechanism="SCRAM-SHA-256", response="")
    assert code == 201, ready
    return str(ready["session"])


def _challenged(ask: Ask, response: str) -> str:
    encoded = b64encode(response.encode()).decode()
    code, answer = ask("Connection.Authorize", mechanism="SCRAM-SHA-256", response=encoded)
    if code != 402:
        raise LogInRefused(code, answer)
    return b64decode(answer["challenge"]).decode()


def _mac(key: bytes, message: bytes) -> bytes:
    return hmac.digest(key, message, "sha256")
