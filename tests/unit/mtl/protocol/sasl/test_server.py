from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.protocol.sasl.mechanisms import ANONYMOUS, BY_STRENGTH, EXTERNAL, PLAIN, SCRAM
from mtl.protocol.sasl.scram import ScramClient, make_verifier
from mtl.protocol.sasl.server import Accepted, Challenge, Check, Denied, Exchange, Outcome

VERIFIER = make_verifier("secret", b"s" * 16, 4096)


def exchange(mechanism: str, owner: str | None = None) -> Exchange:
    return Exchange(mechanism, lambda _: VERIFIER, owner, "nonce")


def test_anonymous_accepts_any_trace() -> None:
    assert exchange(ANONYMOUS).respond(b"trace") == Accepted("anonymous")


def test_external_is_the_owner_of_the_key() -> None:
    assert exchange(EXTERNAL, "etl").respond(b"") == Accepted("etl")
    assert exchange(EXTERNAL, "etl").respond(b"etl") == Accepted("etl")
    assert exchange(EXTERNAL, "etl").respond(b"root") == Denied("etl")
    assert exchange(EXTERNAL).respond(b"etl") == Denied()


def test_plain_returns_the_password_for_the_caller_to_check() -> None:
    assert exchange(PLAIN).respond(b"\0me\0secret") == Check("me", "secret", VERIFIER)
    assert exchange(PLAIN).respond(b"me\0me\0secret") == Check("me", "secret", VERIFIER)
    assert exchange(PLAIN).respond(b"root\0me\0secret") == Denied("me")
    assert "secret" not in repr(exchange(PLAIN).respond(b"\0me\0secret"))


def scram(password: str, there: Exchange) -> list[Outcome]:
    here = ScramClient("me", password)
    outcomes = [there.respond(here.first().encode())]
    while isinstance(outcomes[-1], Challenge):
        outcomes.append(there.respond(here.next(outcomes[-1].octets.decode()).encode()))
    return outcomes


@pytest.mark.requirement("MTL-34")
def test_scram_has_three_steps() -> None:
    there = exchange(SCRAM)
    first, proof, end = scram("secret", there)
    assert isinstance(first, Challenge)
    assert isinstance(proof, Challenge)
    assert end == Accepted("me")
    assert there.respond(b"") == Denied("me"), "it is over"


def test_scram_with_a_wrong_password() -> None:
    there = exchange(SCRAM)
    assert scram("wrong", there)[-1] == Denied("me")
    assert there.respond(b"") == Denied("me")


def test_scram_ends_with_an_empty_response() -> None:
    there, here = exchange(SCRAM), ScramClient("me", "secret")
    first = there.respond(here.first().encode())
    assert isinstance(first, Challenge)
    there.respond(here.next(first.octets.decode()).encode())
    assert there.respond(b"x") == Denied("me")


@given(st.sampled_from(BY_STRENGTH), st.lists(st.binary(max_size=100), min_size=1, max_size=4))
def test_any_octets_have_an_outcome(mechanism: str, responses: list[bytes]) -> None:
    there = exchange(mechanism)
    for response in responses:
        assert isinstance(there.respond(response), Outcome)
