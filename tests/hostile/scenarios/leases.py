"""Leases: unlimited requests, and leases of others."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

from mtl.broker import limits as broker_limits
from mtl.broker.quotas.quotas import DEFAULTS, Quota
from mtl.limits import MAX_RESOURCES_PER_LEASE
from mtl.testing import RunningBroker
from tests.hostile.harness import PASSWORD, scenario
from tests.hostile.scenarios.control import answers, pipelining
from tests.support.minimal_client import LEASE, RESPONSE, minimal_client, short, u64


@scenario(memory=160)
def leases_without_end(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """A session has its share; then it gets 503, and others still get leases."""
    sessions = 12 if heavy else 1
    granted = refused = 0
    with minimal_client(broker.endpoint, "test") as other, minimal_client(broker.endpoint) as client:
        for _ in range(sessions):
            dealer = pipelining(client)
            dealer.send_multipart([b"", b"Connection.Profile", b'{"profile":"test"}'])
            assert dealer.recv_multipart()[1] == b"200"
            for _ in range(broker_limits.MAX_LEASES_PER_SESSION + 100):
                dealer.send_multipart([b"", b"Connection.Writer", b'{"resources":["resource"]}'])
                _, code, body = dealer.recv_multipart()
                granted += code == b"202"
                refused += code == b"503"
                assert code == b"202" or json.loads(body)["reason"] == "overloaded"
        assert refused >= 100 * sessions
        assert granted <= broker_limits.MAX_LEASES
        if granted < broker_limits.MAX_LEASES - 10:  # the bystander has some as well
            assert other.ask("Connection.Writer", resources=["resource"])[0] == 202
        yield f"{granted:,} leases, then {refused:,} times 503"


@scenario(users={"leases-tiny": ("read leases-own",)})
def leases_of_one_name_a_thousand_times(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """A user with one grant, and leases with its one name as often as a request may have it: the name counts once, so
    the user gets its share of leases, and no more.
    """
    count = DEFAULTS[Quota.LEASES] + 100 if heavy else 600
    share = DEFAULTS[Quota.LEASES]
    assert count * MAX_RESOURCES_PER_LEASE > DEFAULTS[Quota.LEASED_NAMES]
    names = ["leases-own"] * MAX_RESOURCES_PER_LEASE
    body = {"resources": names, "group": "leases-tiny.q", "confirm": "none"}
    codes: Counter[int] = Counter()
    with minimal_client(broker.endpoint) as admin, ExitStack() as sessions:
        admin.ask("Resource.Create", resource="leases-own")
        for first in range(0, count, broker_limits.MAX_LEASES_PER_SESSION):
            login = ("leases-tiny", PASSWORD)
            tiny = sessions.enter_context(minimal_client(broker.endpoint, "queue", login=login))
            asked = min(count - first, broker_limits.MAX_LEASES_PER_SESSION)
            codes.update(code for code, _ in answers(tiny, "Connection.Reader", [body] * asked))
        assert codes == Counter({202: min(count, share), 403: max(0, count - share)}) - Counter(), codes
        yield f"{codes[202]:,} leases of {MAX_RESOURCES_PER_LEASE:,} times the same name, then {codes[403]:,} times 403"


@scenario()
def claims_of_another_lease(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Tokens are guessed and derived from a real one; the owner is not affected."""
    count = 100_000 if heavy else 5_000
    with minimal_client(broker.endpoint) as owner:
        owner.ask("Resource.Create", resource="mine")
        lease = owner.granted("Writer", resources=["mine"], confirm="full")
        writer = owner.connect(lease["port"])
        writer.lease(lease["lease"])
        token = lease["lease"]
        with minimal_client(broker.endpoint) as thief:
            flow = thief.connect(lease["port"])
            near = (token[:-1] + "g", token.upper() + "0", token[1:], token + "0", "", "0" * 32)
            for number in range(count):
                guess = near[number] if number < len(near) else os.urandom(16).hex()
                flow.send(LEASE, u64(number + 1) + short(guess))
                if number >= 100:
                    assert flow.receive() == (RESPONSE + u64(number - 99), b"403")
            flow.content(1, b"not mine", "mine")
        writer.content(1, b"mine")
        writer.await_confirm(1)
        assert owner.ask("Resource.Describe", resource="mine")[1]["resources"][0]["next"] == 2
        yield f"{count:,} tokens guessed"
