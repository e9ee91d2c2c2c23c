"""Users for tests of the core, and a client that logs in as one of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mtl.broker.access.accounts import Right
from mtl.broker.access.authentication import AuthenticationSettings
from mtl.net.origin import NO_ORIGIN, Origin
from mtl.protocol.sasl.client import Authentication, Credentials
from mtl.protocol.sasl.scram import make_verifier
from mtl.storage.records import GrantRecord, PasswordRecord, UserRecord
from mtl.wire import control
from tests.support.core import Client, Rig

ITERATIONS = 4096
"""The smallest allowed number of iterations, so that tests are fast."""


def user(
    name: str, password: str | None = None, *grants: str, keys: Iterable[str] = (), vhost: str = "/"
) -> UserRecord:
    """A user; grants are texts such as "read a.*" or "group g"; without any the user has all rights."""
    made = make_verifier(password, b"salt of " + name.encode().ljust(8), ITERATIONS) if password else None
    kept = PasswordRecord(made.salt, made.iterations, made.stored_key, made.server_key) if made else None
    rights = grants or tuple(f"{right} .*" for right in Right)
    return UserRecord(
        name, kept, tuple(keys), tuple(GrantRecord(vhost, *grant.split(" ", 1)) for grant in rights)
    )


def rig_with(*users: UserRecord, **settings: Any) -> Rig:
    """A broker that admits only these users, on an unencrypted connection."""
    members: dict[str, Any] = {"anonymous": False, "secret": b"secret of the directory"} | settings
    rig = Rig(authentication=AuthenticationSettings(**members))
    rig.broker.users(users, rig.now())
    return rig


def login(client: Client, credentials: Credentials, *, vhost: str | None = None) -> control.Ready:
    """Open and authenticate as the client does, and use the token afterwards. Raises the errors of the client."""
    reply: object = client.ask(
        control.ConnectionOpen(protocol=control.Protocol(), virtual_host=vhost), control.Reply
    )
    return authenticate(client, credentials, reply)


def authenticate(
    client: Client, credentials: Credentials, reply: object, peer: str | None = None
) -> control.Ready:
    """Answer 401 and 402 until the 201; as a door that checks the credentials of a `peer`."""
    conversation = Authentication(credentials, peer)
    while not isinstance(reply, control.Ready):
        if isinstance(reply, control.Unauthorized):
            reply = client.ask(conversation.begin(reply.mechanisms), control.Reply)
        else:
            assert isinstance(reply, control.Challenged)
            reply = client.ask(conversation.proceed(reply), control.Reply)
    conversation.finish(reply)
    client.session = reply.session
    return reply


def logged_in(
    rig: Rig, name: str, password: str = "secret", origin: Origin = NO_ORIGIN, *, profile: str = "log"
) -> Client:
    """A client of a profile."""
    client = Client(rig, origin)
    login(client, Credentials(name, password))
    client.ask(control.ConnectionProfile(profile=profile), control.Ok)
    return client
