"""Log-ins: guesses from an address, and others who come from there."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Iterator

import zmq

from mtl.broker.runtime.users import Users
from mtl.net.curve import read_pair, read_public, write_keys
from mtl.testing import RunningBroker
from tests.hostile.harness import PASSWORD, scenario
from tests.support.minimal_client import Keys, MinimalClient
from tests.support.minimal_scram import LogInRefused, log_in

PATIENCE_S = 20.0
OPEN = {"protocol": {"name": "MTL", "version": 1}}
ATTEMPTS = 3
"""Of one session."""


def outcome(endpoint: str, keys: Keys, *logins: tuple[str, str]) -> list[int]:
    """The codes of SCRAM log-ins of one session."""
    client = MinimalClient(endpoint, keys=keys)
    found = []
    try:
        assert client.ask("Connection.Open", **OPEN)[0] in {201, 401}
        for login in logins:
            try:
                log_in(client.ask, *login)
                found.append(201)
            except LogInRefused as error:
                found.append(error.code)
    finally:
        client.close()
    return found


def external(endpoint: str, keys: Keys) -> int:
    """The code of a log-in by the CURVE key."""
    client = MinimalClient(endpoint, keys=keys)
    try:
        client.ask("Connection.Open", **OPEN)
        return client.ask("Connection.Authorize", mechanism="EXTERNAL", response="")[0]
    finally:
        client.close()


@scenario(
    users={"logins-known": ("read r",), "logins-key": ("read r",), "logins-victim": ("read r",)},
    config="[authentication]\nanonymous = false\n",
    curve=True,
)
def names_and_passwords_guessed_at_an_address(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Wrong names, and wrong passwords of one user, by SCRAM and PLAIN: only this user is locked out, for passwords
    from this address; others come in from there, by password and by key.
    """
    count = 3_000 if heavy else 105
    place = broker.data.parent
    server = read_public(str(place / "curve.pub"))
    private, _ = write_keys(place / "logins-key")
    own: Keys = (server, *read_pair(private))
    stranger: Keys = (server, *zmq.curve_keypair())
    with Users(broker.data) as users:
        users.add_key("logins-key", read_public(str(place / "logins-key.pub")).decode())
    for first in range(0, count, ATTEMPTS):
        names = [(f"stranger{number}", "wrong") for number in range(first, first + ATTEMPTS)]
        assert outcome(broker.endpoint, stranger, *names)[0] == 401, "the first guess of a session"
    for _ in range(4):
        outcome(broker.endpoint, stranger, *[("logins-victim", "wrong")] * ATTEMPTS)
    plain_guesses(broker.endpoint, stranger, 300 if heavy else 30)
    assert outcome(broker.endpoint, stranger, ("logins-victim", PASSWORD)) == [403], "after many wrong ones"
    assert outcome(broker.endpoint, stranger, ("logins-known", PASSWORD)) == [201], (
        "the address is locked out"
    )
    until = time.monotonic() + PATIENCE_S
    while external(broker.endpoint, own) != 201:
        assert time.monotonic() < until, "a key is locked out"
        time.sleep(0.5)  # a running broker finds a new key within a second
    yield f"{count:,} wrong names, and wrong passwords of a user"


def plain_guesses(endpoint: str, keys: Keys, count: int) -> None:
    """Wrong passwords by PLAIN, all at once: each is checked in a thread, and some have to be refused for now."""
    client = MinimalClient(endpoint, keys=keys)
    dealers = [client.socket(zmq.DEALER) for _ in range(count)]
    try:
        for dealer in dealers:
            dealer.connect(endpoint)
            dealer.send_multipart([b"", b"Connection.Open", b'{"protocol": {"name": "MTL", "version": 1}}'])
        for dealer in dealers:
            assert dealer.recv_multipart()[1] == b"401"
        for number, dealer in enumerate(dealers):
            response = b64encode(b"\0name%d\0wrong" % number).decode()
            body = f'{{"mechanism": "PLAIN", "response": "{response}"}}'
            dealer.send_multipart([b"", b"Connection.Authorize", body.encode()])
        for dealer in dealers:
            assert dealer.recv_multipart()[1] in {b"401", b"503"}
    finally:
        client.close()
