"""SASL: messages of a hostile client to the broker, and of a hostile server to the client."""

from __future__ import annotations

from mtl.errors import Malformed
from mtl.protocol.sasl.mechanisms import ANONYMOUS, EXTERNAL, PLAIN, SCRAM
from mtl.protocol.sasl.scram import ScramClient, Unproven, Verifier, make_verifier
from mtl.protocol.sasl.server import Challenge, Exchange

MECHANISMS = (SCRAM, PLAIN, EXTERNAL, ANONYMOUS)
NONCE = "rOprNGfwEbeRWgbNEkqO"
VERIFIER = make_verifier("pencil", b"W22ZaJ0SNY7soEsUEjb6gQ==", 4096)


def _find(_user: str) -> Verifier:
    return VERIFIER


def run_server(data: bytes) -> None:
    """The mechanism, then its responses, a line each: any octets have an outcome."""
    exchange = Exchange(MECHANISMS[data[0] % 4 if data else 0], _find, "owner", NONCE)
    for response in data[1:].split(b"\n"):
        if not isinstance(exchange.respond(response), Challenge):
            return


def run_client(data: bytes) -> None:
    """The server's messages, a line each, to a client that waits for them; NONCE stands for the client's own."""
    client = ScramClient("user", "pencil")
    nonce = client.first().partition("r=")[2]
    for challenge in data.decode("utf-8", "replace").split("\n"):
        try:
            client.next(challenge.replace("NONCE", nonce))
        except (Unproven, Malformed):
            return
        assert not client.finished, "a server that does not know the password proved that it does"


SERVER = (
    b"\0n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL\nc=biws,r=fyko+d2lbbFgONRv9qkxdawLrOprNGfwEbeRWgbNEkqO,p=AAAA\n",
    b"\0y,a=other,n=us=2Cer,r=abc\nc=eSw=,r=abc,p=\n",
    b"\0p=tls-unique,,n=user,r=abc",
    b"\1\0user\0pencil",
    b"\1other\0user\0pencil",
    b"\2owner",
    b"\3trace",
)
CLIENT = (
    b"r=NONCE3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096\nv=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    b"r=NONCE,s=QSXCR+Q6sek8bf92,i=1\ne=other-error",
    b"r=NONCEx,s=,i=0",
    b"r=NONCEx,s=QQ==,i=-1",
    b"m=x,r=NONCEx,s=QQ==,i=4096,x=y",
)
TOKENS = (
    b"n,,",
    b"y,,",
    b"r=",
    b"s=",
    b"i=",
    b"v=",
    b"p=",
    b"c=biws",
    b"m=",
    b"a=",
    b"e=",
    b"=2C",
    b"=3D",
    b"NONCE",
)
