from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.errors import LocalError, Refused
from mtl.protocol.sasl.client import Authentication, Credentials
from mtl.protocol.sasl.mechanisms import decode, encode
from mtl.protocol.sasl.scram import ScramServer, Verifier, make_verifier
from mtl.wire import control

ME = Credentials("me", "secret")
READY = control.Ready(profiles=["log"])
VERIFIER = make_verifier("secret", b"s" * 16, 4096)


def text(request: control.ConnectionAuthorize) -> str:
    return decode(request.response).decode()


def challenged(message: str, mechanism: str = "SCRAM-SHA-256") -> control.Challenged:
    return control.Challenged(mechanism=mechanism, challenge=encode(message.encode()))


def server(verifier: Verifier = VERIFIER) -> ScramServer:
    return ScramServer(lambda _: verifier, "nonce")


# --- which mechanism ----------------------------------------------------------------------------------------


def test_plain_sends_user_and_password() -> None:
    asked = Authentication(ME).begin(["PLAIN"])
    assert (asked.mechanism, text(asked)) == ("PLAIN", "\0me\0secret")


def test_anonymous_is_used_without_a_user() -> None:
    assert Authentication(Credentials()).begin(["anonymous", "PLAIN"]).mechanism == "ANONYMOUS"
    with pytest.raises(Refused, match="asks for credentials"):
        Authentication(Credentials()).begin(["PLAIN"])


def test_mechanism_names_are_case_insensitive_and_the_strongest_is_used() -> None:
    assert Authentication(ME).begin(["plain", "scram-sha-256"]).mechanism == "SCRAM-SHA-256"


def test_each_mechanism_is_tried_once() -> None:
    authentication = Authentication(ME)
    assert authentication.begin(["PLAIN", "SCRAM-SHA-256"]).mechanism == "SCRAM-SHA-256"
    assert authentication.begin(["PLAIN", "SCRAM-SHA-256"]).mechanism == "PLAIN"
    with pytest.raises(Refused, match="did not accept the password of user 'me'"):
        authentication.begin(["PLAIN", "SCRAM-SHA-256"])
    with pytest.raises(Refused, match="offers KERBEROS"):
        Authentication(ME).begin(["KERBEROS"])


def test_a_key_alone_uses_external_if_offered() -> None:
    key = Credentials(key=True)
    assert Authentication(key).begin(["EXTERNAL", "ANONYMOUS"]).mechanism == "EXTERNAL"
    assert Authentication(key).begin(["ANONYMOUS"]).mechanism == "ANONYMOUS"
    asked = Authentication(Credentials("me", key=True)).begin(["EXTERNAL"])
    assert text(asked) == "me"
    with pytest.raises(Refused, match="knows EXTERNAL"):
        Authentication(Credentials("me", key=True)).begin(["ANONYMOUS"])


def test_a_chosen_mechanism_is_the_only_one_used() -> None:
    chosen = Authentication(Credentials("me", "secret", mechanism="plain"))
    assert chosen.begin(["PLAIN", "SCRAM-SHA-256"]).mechanism == "PLAIN"
    with pytest.raises(Refused):
        chosen.begin(["PLAIN", "SCRAM-SHA-256"])
    with pytest.raises(Refused, match="needs a user and a password"):
        Authentication(Credentials(mechanism="PLAIN")).begin(["PLAIN"])


def test_a_password_is_not_sent_in_clear_without_consent() -> None:
    """An attacker in the middle could offer only PLAIN."""
    with pytest.raises(Refused, match="not encrypted"):
        Authentication(Credentials("me", "secret", clear=True)).begin(["PLAIN"])
    first = Authentication(Credentials("me", "secret", "PLAIN", clear=True)).begin(["PLAIN"])
    assert first.mechanism == "PLAIN"


@pytest.mark.parametrize(
    ("credentials", "insist"),
    [
        (Credentials(), False),
        (Credentials(key=True), False),
        (Credentials(mechanism="ANONYMOUS"), False),
        (Credentials("me", "secret"), True),
        (Credentials(mechanism="EXTERNAL", key=True), True),
    ],
)
def test_credentials_with_a_user_insist_on_authentication(credentials: Credentials, *, insist: bool) -> None:
    assert credentials.insist is insist


def test_a_password_is_hidden_in_repr() -> None:
    assert "secret" not in repr(ME)


# --- SCRAM --------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-32", "MTL-33", "MTL-34")
def test_scram_proves_the_password_in_both_directions() -> None:
    there, here = server(), Authentication(ME)
    first = there.first(text(here.begin(["SCRAM-SHA-256"])))
    final = there.final(text(here.proceed(challenged(first))))
    assert text(here.proceed(challenged(final))) == ""
    here.finish(READY)
    with pytest.raises(Refused, match="continues after its proof"):
        here.proceed(challenged(final))


def test_a_server_that_cannot_prove_itself_is_refused() -> None:
    there, here = server(), Authentication(ME)
    here.proceed(challenged(there.first(text(here.begin(["SCRAM-SHA-256"])))))
    with pytest.raises(Refused, match="SCRAM failed"):
        here.proceed(challenged("v=" + encode(b"x" * 32)))


def test_a_201_before_the_servers_proof_is_refused() -> None:
    """An attacker in the middle without the verifier would skip the proof."""
    there, here = server(), Authentication(ME)
    here.begin(["SCRAM-SHA-256"])
    with pytest.raises(Refused, match="without a proof"):
        here.finish(READY)
    here = Authentication(ME)
    here.proceed(challenged(there.first(text(here.begin(["SCRAM-SHA-256"])))))
    with pytest.raises(Refused, match="without a proof"):
        here.finish(READY)
    plain = Authentication(ME)
    plain.begin(["PLAIN"])
    plain.finish(READY)


def test_a_challenge_of_another_mechanism_is_refused() -> None:
    here = Authentication(ME)
    here.begin(["PLAIN"])
    with pytest.raises(Refused, match="unexpected"):
        here.proceed(challenged("x", "PLAIN"))
    here.begin(["SCRAM-SHA-256"])
    with pytest.raises(Refused, match="BASE64"):
        here.proceed(control.Challenged(mechanism="SCRAM-SHA-256", challenge="?"))


def test_names_forbidden_by_saslprep_are_refused() -> None:
    with pytest.raises(LocalError, match="cannot be used"):
        Authentication(Credentials("me\0", "secret")).begin(["SCRAM-SHA-256"])


@given(st.text(max_size=200) | st.binary(max_size=200).map(encode))
def test_any_challenge_is_answered_or_refused(challenge: str) -> None:
    here = Authentication(ME)
    here.begin(["SCRAM-SHA-256"])
    with pytest.raises(Refused):
        here.proceed(control.Challenged(mechanism="SCRAM-SHA-256", challenge=challenge))
