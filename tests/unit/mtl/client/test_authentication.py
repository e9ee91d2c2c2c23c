from __future__ import annotations

import base64

import pytest
from scramp import ScramMechanism

from mtl.client.authentication import Authentication
from mtl.errors import Refused
from mtl.wire import control as w


def text(request: w.Authorize) -> str:
    return base64.b64decode(request.response).decode()


def challenged(message: str, mechanism: str = "SCRAM-SHA-256") -> w.Challenged:
    return w.Challenged(mechanism=mechanism, challenge=base64.b64encode(message.encode()).decode())


def test_plain_says_user_and_password() -> None:
    asked = Authentication("me", "secret").begin(["PLAIN"])
    assert (asked.mechanism, text(asked)) == ("PLAIN", "\0me\0secret")


def test_anonymous_is_for_those_without_a_user() -> None:
    assert Authentication(None, None).begin(["anonymous", "PLAIN"]).mechanism == "ANONYMOUS"
    with pytest.raises(Refused, match="wants credentials"):
        Authentication(None, None).begin(["PLAIN"])


def test_names_of_mechanisms_are_case_insensitive_and_the_strongest_is_taken() -> None:
    assert Authentication("me", "secret").begin(["plain", "scram-sha-256"]).mechanism == "SCRAM-SHA-256"


def test_each_mechanism_is_tried_once() -> None:
    one = Authentication("me", "secret")
    assert one.begin(["PLAIN", "SCRAM-SHA-256"]).mechanism == "SCRAM-SHA-256"
    assert one.begin(["PLAIN", "SCRAM-SHA-256"]).mechanism == "PLAIN"
    with pytest.raises(Refused, match="did not accept the password of user 'me'"):
        one.begin(["PLAIN", "SCRAM-SHA-256"])
    with pytest.raises(Refused, match="offers KERBEROS"):
        Authentication("me", "secret").begin(["KERBEROS"])


@pytest.mark.requirement("MTL-32", "MTL-33", "MTL-34")
def test_scram_proves_the_password_and_lets_the_server_prove_its_own() -> None:
    mechanism = ScramMechanism("SCRAM-SHA-256")
    salt, stored, server, iterations = mechanism.make_auth_info("secret")
    there = mechanism.make_server(lambda _: (salt, stored, server, iterations))
    here = Authentication("me", "secret")
    there.set_client_first(text(here.begin(["SCRAM-SHA-256"])))
    there.set_client_final(text(here.proceed(challenged(there.get_server_first()))))
    assert text(here.proceed(challenged(there.get_server_final()))) == ""


def test_a_server_that_cannot_prove_itself_is_refused() -> None:
    mechanism = ScramMechanism("SCRAM-SHA-256")
    salt, stored, server, iterations = mechanism.make_auth_info("secret")
    there = mechanism.make_server(lambda _: (salt, stored, server, iterations))
    here = Authentication("me", "secret")
    there.set_client_first(text(here.begin(["SCRAM-SHA-256"])))
    here.proceed(challenged(there.get_server_first()))
    with pytest.raises(Refused, match="SCRAM failed"):
        here.proceed(challenged("v=" + base64.b64encode(b"x" * 32).decode()))


def test_a_challenge_of_another_mechanism_is_refused() -> None:
    here = Authentication("me", "secret")
    here.begin(["PLAIN"])
    with pytest.raises(Refused, match="unexpected"):
        here.proceed(challenged("x", "PLAIN"))
    here.begin(["SCRAM-SHA-256"])
    with pytest.raises(Refused, match="BASE64"):
        here.proceed(w.Challenged(mechanism="SCRAM-SHA-256", challenge="?"))
