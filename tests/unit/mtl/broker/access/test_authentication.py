"""From a 401 to a principal: mechanisms, failures, credentials that change. RFC 11 "Client Authentication"."""

from __future__ import annotations

import pytest
from msgspec import structs

from mtl.broker import actions
from mtl.broker import limits as broker_limits
from mtl.errors import Refused
from mtl.net.origin import Origin
from mtl.protocol.sasl import plain
from mtl.protocol.sasl.client import Credentials
from mtl.protocol.sasl.mechanisms import decode, encode
from mtl.protocol.sasl.scram import ScramClient
from mtl.protocol.sasl.server import ANONYMOUS_USER
from mtl.wire import control
from tests.support.core import Client, Rig
from tests.support.users import authenticate, logged_in, login, rig_with, user

OPEN = control.ConnectionOpen(protocol=control.Protocol())
ME = Credentials("me", "secret")


def authorize(mechanism: str, response: bytes = b"") -> control.ConnectionAuthorize:
    return control.ConnectionAuthorize(mechanism=mechanism, response=encode(response))


def unauthorized_with(mechanism: str) -> control.Unauthorized:
    """A 401 for `authenticate`, for a client that authenticates without one."""
    return control.Unauthorized(mechanisms=[mechanism])


def plainly(name: str, password: str) -> control.ConnectionAuthorize:
    return authorize("PLAIN", plain.encode(plain.PlainMessage(name, password)))


# --- offered mechanisms -------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-24", "MTL-27", "MTL-29", "MTL-30", "MTL-31")
def test_anonymous_may_be_requested_explicitly(rig: Rig) -> None:
    client = Client(rig)
    client.ask(OPEN, control.Ready)
    ready = client.ask(control.ConnectionAuthorize(mechanism="anonymous", response="aGk="), control.Ready)
    assert ready.status == "Ready"
    unauthorized = client.ask(
        control.ConnectionAuthorize(mechanism="PLAIN", response=""), control.Unauthorized
    )
    assert "ANONYMOUS" in unauthorized.mechanisms


def test_a_response_that_is_not_base64_is_refused(rig: Rig) -> None:
    client = Client(rig)
    client.ask(OPEN, control.Ready)
    assert client.refused(control.ConnectionAuthorize(mechanism="ANONYMOUS", response="!")).status == 400


@pytest.mark.requirement("MTL-27", "MTL-28")
def test_without_anonymous_a_client_needs_credentials() -> None:
    client = Client(rig_with())
    offered = ["SCRAM-SHA-256"]
    assert client.ask(OPEN, control.Unauthorized).mechanisms == offered
    assert client.ask(control.ConnectionProfile(profile="log"), control.Unauthorized).status == "Unauthorized"
    for mechanism in ("ANONYMOUS", "KERBEROS", "PLAIN", "EXTERNAL"):
        assert client.ask(authorize(mechanism), control.Unauthorized).mechanisms == offered


@pytest.mark.parametrize(
    ("settings", "key", "offered"),
    [
        ({}, "", ["SCRAM-SHA-256"]),
        ({"plain_without_encryption": True}, "", ["SCRAM-SHA-256", "PLAIN"]),
        ({"protected": True}, "", ["SCRAM-SHA-256", "PLAIN"]),
        ({"protected": True}, "mine", ["EXTERNAL", "SCRAM-SHA-256", "PLAIN"]),
        ({"protected": True, "mechanisms": ("EXTERNAL",)}, "mine", ["EXTERNAL"]),
        ({"protected": True, "mechanisms": ("EXTERNAL",)}, "nobody's", []),
        ({"anonymous": "granted"}, "", ["SCRAM-SHA-256", "ANONYMOUS"]),
    ],
)
def test_usable_mechanisms_are_offered(settings: dict[str, object], key: str, offered: list[str]) -> None:
    client = Client(
        rig_with(user("me", "secret", keys=["mine"]), **settings), Origin("here", f"1 {key}" if key else "")
    )
    assert client.ask(OPEN, control.Unauthorized).mechanisms == offered


# --- each mechanism -----------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-24", "MTL-31", "MTL-32", "MTL-33", "MTL-34")
def test_scram() -> None:
    rig = rig_with(user("me", "secret"))
    client = Client(rig)
    ready = login(client, ME)
    assert ready.session == client.session
    client.ask(control.ConnectionProfile(profile="log"), control.Ok)
    client.create("a")


@pytest.mark.requirement("MTL-31")
def test_plain_passwords_are_checked_off_the_loop() -> None:
    """The check is slow on purpose; the broker serves other clients meanwhile."""
    rig = rig_with(user("me", "secret"), protected=True)
    client, other = Client(rig), Client(rig)
    client.ask(OPEN, control.Unauthorized)
    rig.hold(actions.CheckPassword)
    waiting = client.begin(plainly("me", "secret"))
    assert not waiting.answered
    assert "secret" not in repr(rig.held[0])
    other.ask(OPEN, control.Unauthorized)
    rig.let_go()
    waiting.reply(control.Ready)
    client.ask(control.ConnectionProfile(profile="log"), control.Ok)


@pytest.mark.parametrize(
    ("limit", "address", "message"),
    [
        ("MAX_PASSWORD_CHECKS", "elsewhere", "1 passwords wait"),
        ("MAX_PASSWORD_CHECKS_ADDRESS", "here", "1 passwords from this address wait"),
    ],
)
def test_waiting_password_checks_are_bounded(
    monkeypatch: pytest.MonkeyPatch, limit: str, address: str, message: str
) -> None:
    monkeypatch.setattr(broker_limits, limit, 1)
    rig = rig_with(user("me", "secret"), protected=True)
    at_once = broker_limits.PASSWORD_CHECKS_AT_ONCE
    clients = [Client(rig, Origin("here", f"{number}")) for number in range(at_once + 1)]
    late = Client(rig, Origin(address, "late"))
    for client in (*clients, late):
        client.ask(OPEN, control.Unauthorized)
    rig.hold(actions.CheckPassword)
    waiting = [client.begin(plainly("me", "secret")) for client in clients]
    refused = late.refused(plainly("me", "secret"))
    assert (refused.status, refused.reason) == (503, control.OVERLOADED)
    assert message in refused.message
    rig.let_go()
    for check in waiting:
        check.reply(control.Ready)
    late.ask(plainly("me", "secret"), control.Ready)


def test_addresses_take_turns_at_password_checks() -> None:
    """A right password waits for one wrong password from another address, not for all of them."""
    rig = rig_with(user("me", "secret"), user("you", "secret"), protected=True)
    guessers = [Client(rig, Origin("there", f"{number}")) for number in range(20)]
    client = Client(rig, Origin("here"))
    for peer in (*guessers, client):
        peer.ask(OPEN, control.Unauthorized)
    rig.hold(actions.CheckPassword)
    for guesser in guessers:
        guesser.begin(plainly("you", "wrong"))
    waiting = client.begin(plainly("me", "secret"))
    for _ in range(broker_limits.PASSWORD_CHECKS_AT_ONCE + 2):
        rig.let_go(1)
    waiting.reply(control.Ready)


@pytest.mark.requirement("MTL-27")
def test_plain_is_refused_on_an_unencrypted_connection() -> None:
    client = Client(rig_with(user("me", "secret")))
    client.ask(OPEN, control.Unauthorized)
    assert "PLAIN" not in client.ask(plainly("me", "secret"), control.Unauthorized).mechanisms


def test_external_authenticates_the_owner_of_the_key() -> None:
    rig = rig_with(user("me", keys=["mine"]), protected=True)
    client = Client(rig, Origin("here", "1 mine"))
    login(client, Credentials(key=True))
    client.ask(control.ConnectionProfile(profile="log"), control.Ok)
    client.create("a")


def test_a_user_cannot_log_in_over_the_key_of_another_user() -> None:
    """CURVE's User-Id and the principal have to be the same."""
    rig = rig_with(user("me", "secret"), user("you", keys=["yours"]), protected=True)
    client = Client(rig, Origin("here", "1 yours"))
    with pytest.raises(Refused) as caught:
        login(client, ME)
    assert caught.value.status == 401


def test_granted_anonymous_has_only_its_grants() -> None:
    rig = rig_with(user("anonymous", None, "read public"), user("me", "secret"), anonymous="granted")
    client = Client(rig)
    login(client, Credentials())
    client.ask(control.ConnectionProfile(profile="log"), control.Ok)
    assert client.refused(control.ResourceCreate(resource="public")).status == 403


def test_a_user_without_a_grant_in_the_virtual_host_is_refused() -> None:
    rig = rig_with(user("me", "secret", "read x", vhost="elsewhere"))
    with pytest.raises(Refused) as caught:
        login(Client(rig), ME)
    assert (caught.value.status, caught.value.reason) == (403, control.NOT_AUTHORIZED)


def test_another_mechanism_may_be_started_during_a_conversation() -> None:
    client = Client(rig_with(user("me", "secret"), protected=True))
    client.ask(OPEN, control.Unauthorized)
    client.ask(authorize("SCRAM-SHA-256", ScramClient("me", "x").first().encode()), control.Challenged)
    client.ask(plainly("me", "secret"), control.Ready)


# --- failures -----------------------------------------------------------------------------------------------


def attempt(client: Client, name: str, password: str) -> control.Unauthorized:
    """SCRAM by hand, up to the broker's judgement."""
    scram = ScramClient(name, password)
    first = client.ask(authorize("SCRAM-SHA-256", scram.first().encode()), control.Challenged)
    text = scram.next(decode(first.challenge).decode())
    return client.ask(authorize("SCRAM-SHA-256", text.encode()), control.Unauthorized)


@pytest.mark.requirement("MTL-27", "MTL-32")
@pytest.mark.parametrize("name", ["me", "nobody", "keyed"])
def test_wrong_password_and_unknown_user_get_the_same_answer(name: str) -> None:
    client = Client(rig_with(user("me", "secret"), user("keyed", keys=["k"])))
    client.ask(OPEN, control.Unauthorized)
    assert (
        attempt(client, name, "wrong")
        == attempt(client, name, "wrong")
        == control.Unauthorized(mechanisms=["SCRAM-SHA-256"])
    )


def test_a_user_whose_record_cannot_be_read_gets_503_and_no_challenge() -> None:
    rig = rig_with(protected=True)
    rig.store.damage("user", "me")
    rig.restart()
    client = Client(rig)
    client.ask(OPEN, control.Unauthorized)
    refused = client.refused(plainly("me", "secret"))
    assert (refused.status, refused.reason) == (503, control.STORAGE)
    assert "user 'me'" in refused.message


def test_from_the_third_failure_on_a_session_gets_403() -> None:
    client = Client(rig_with(user("me", "secret"), attempts=3))
    client.ask(OPEN, control.Unauthorized)
    for _ in range(2):
        attempt(client, "me", "wrong")
    with pytest.raises(Refused) as caught:
        attempt(client, "me", "wrong")
    assert (caught.value.status, caught.value.reason) == (403, control.NOT_AUTHORIZED)
    unauthorized = client.ask(OPEN, control.Unauthorized)
    with pytest.raises(Refused) as caught:
        authenticate(client, ME, unauthorized)
    assert caught.value.status == 403, "also with the right password"
    login(Client(client.rig), ME)  # a new session may try again


def test_failures_count_across_sessions_and_lock_out_a_right_password_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_limits, "FAILED_LOGINS", 4)
    rig = rig_with(user("me", "secret"), attempts=2)
    for _ in range(2):
        client = Client(rig, Origin("here"))
        client.ask(OPEN, control.Unauthorized)
        attempt(client, "me", "wrong")
        with pytest.raises(Refused):
            attempt(client, "me", "wrong")
    for password in ("wrong", "secret"):
        with pytest.raises(Refused) as caught:
            login(Client(rig, Origin("here")), Credentials("me", password))
        assert caught.value.status == 403
    login(Client(rig, Origin("elsewhere")), ME)
    rig.sleep(broker_limits.FAILED_LOGINS_S + 1)
    login(Client(rig, Origin("here")), ME)


def test_wrong_passwords_for_other_names_do_not_lock_out_a_user() -> None:
    """A stranger cannot lock out those who share its address."""
    rig = rig_with(user("me", "secret"), user("you", "secret"))
    for number in range(200):
        client = Client(rig, Origin("here"))
        client.ask(OPEN, control.Unauthorized)
        attempt(client, "you" if number % 20 == 0 else f"user {number}", "wrong")
    login(Client(rig, Origin("here")), ME)


def test_a_name_without_a_user_is_locked_out_like_a_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "FAILED_LOGINS", 2)
    rig = rig_with(user("me", "secret"))
    for _ in range(2):
        client = Client(rig, Origin("here"))
        client.ask(OPEN, control.Unauthorized)
        attempt(client, "nobody", "wrong")
    with pytest.raises(Refused) as caught:
        login(Client(rig, Origin("here")), Credentials("nobody", "wrong"))
    assert caught.value.status == 403


def test_invented_names_do_not_displace_the_counts_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "FAILED_LOGINS", 2)
    monkeypatch.setattr(broker_limits, "MAX_FAILED_LOGINS", 3)
    rig = rig_with(user("me", "secret"))
    for name in ("me", "me", "a", "b", "c", "d"):
        client = Client(rig, Origin("here"))
        client.ask(OPEN, control.Unauthorized)
        attempt(client, name, "wrong")
    with pytest.raises(Refused) as caught:
        login(Client(rig, Origin("here")), ME)
    assert caught.value.status == 403


def test_a_lock_out_does_not_concern_a_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CURVE key cannot be guessed."""
    monkeypatch.setattr(broker_limits, "FAILED_LOGINS", 1)
    rig = rig_with(user("me", "secret", keys=["mine"]), protected=True)
    guesser = Client(rig, Origin("here"))
    guesser.ask(OPEN, control.Unauthorized)
    attempt(guesser, "me", "wrong")
    login(Client(rig, Origin("here", "1 mine")), Credentials(key=True))
    with pytest.raises(Refused):
        login(Client(rig, Origin("here")), ME)


@pytest.mark.parametrize("password", ["wrong", "secret"])
def test_a_lock_out_is_checked_before_the_proof(monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    """A conversation that began before the lock-out is refused as well: 402 for a right proof would be an oracle."""
    monkeypatch.setattr(broker_limits, "FAILED_LOGINS", 1)
    rig = rig_with(user("me", "secret"))
    client, other = Client(rig, Origin("here")), Client(rig, Origin("here"))
    scram = ScramClient("me", password)
    client.ask(OPEN, control.Unauthorized)
    first = client.ask(authorize("SCRAM-SHA-256", scram.first().encode()), control.Challenged)
    other.ask(OPEN, control.Unauthorized)
    attempt(other, "me", "wrong")

    final = scram.next(decode(first.challenge).decode())
    assert client.refused(authorize("SCRAM-SHA-256", final.encode())).status == 403
    again = Client(rig, Origin("here"))
    again.ask(OPEN, control.Unauthorized)
    begun = ScramClient("me", password).first()
    assert again.refused(authorize("SCRAM-SHA-256", begun.encode())).status == 403


@pytest.mark.requirement("MTL-21")
def test_authorize_before_open() -> None:
    refused = Client(rig_with(user("me", "secret"))).refused(plainly("me", "secret"))
    assert (refused.status, refused.reason) == (400, control.NOT_OPEN)


# --- tokens -------------------------------------------------------------------------------------------------


def test_every_log_in_makes_a_new_token() -> None:
    """A token seen before the log-in is invalid after it."""
    rig = rig_with(user("me", "secret", "read .*"), anonymous="granted")
    rig.broker.users([user("me", "secret"), user(ANONYMOUS_USER, None, "read .*")], rig.now())
    client = Client(rig)
    client.ask(OPEN, control.Unauthorized)
    anonymous = client.ask(authorize("ANONYMOUS"), control.Ready).session
    unauthorized = client.ask(OPEN, control.Unauthorized)
    first = authenticate(client, ME, unauthorized).session
    client.ask(control.ConnectionProfile(profile="log"), control.Ok)
    unauthorized = client.ask(OPEN, control.Unauthorized)
    second = authenticate(client, ME, unauthorized).session
    assert len({anonymous, first, second}) == 3
    for old in (anonymous, first):
        thief = Client(rig)
        thief.session = old
        assert thief.refused(control.ResourceList()).reason == control.NOT_OPEN
    client.ask(control.ConnectionProfile(profile="log"), control.Ok)
    client.create("a")


def test_leases_and_groups_outlive_the_token_they_were_granted_under() -> None:
    rig = rig_with(user("me", "secret"))
    client = logged_in(rig, "me")
    client.create("a")
    writer = client.flow(client.writer("a"))
    reader = client.flow(client.reader("a", group="g"))
    rig.broker.users([user("me", "changed")], rig.now())
    unauthorized = client.ask(control.ResourceList(), control.Unauthorized)
    authenticate(client, Credentials("me", "changed"), unauthorized)
    writer.content(1, b"x")
    reader.summon("a")
    assert [bytes(x.body) for x in reader.contents()] == [b"x"]
    second = client.reader("a", group="g")
    assert second.epoch == 1, "the session is the same holder as before"


# --- credentials that change --------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-28", "MTL-29")
def test_a_new_password_ends_leases_and_waiting_requests() -> None:
    rig = rig_with(user("me", "secret"), user("you", "secret"))
    client, other = logged_in(rig, "me"), logged_in(rig, "you")
    client.create("a")
    lease, kept = client.writer("a"), other.writer("a")
    flow = client.flow(lease)
    flow.content(1, b"before")
    state = client.ask(control.ResourceDescribe(), control.DescriptionList).state
    asks = control.ResourceDescribe(resource="a", since=state, wait=20_000)
    waiting, others = client.begin(asks), other.begin(asks)
    changed = structs.replace(user("me", "changed"), generation=1)
    rig.broker.users([changed, user("you", "secret")], rig.now())
    rig.run()
    assert (waiting.answered, others.answered) == (True, False)
    unauthorized = client.ask(control.ResourceList(), control.Unauthorized)
    flow.content(2, b"after")
    authenticate(client, Credentials("me", "changed"), unauthorized)
    assert client.describe("a").next == 2
    leases = rig.broker.parts.leases
    assert [leases.find(x.lease) is not None for x in (lease, kept)] == [False, True]


def test_a_withdrawn_right_to_act_as_a_user_ends_its_waiting_requests() -> None:
    rig = rig_with(user("door", "secret", "act-as me"), user("me", "secret"))
    client = Client(rig)
    login(client, Credentials("door", "secret", acting_as="me"))
    client.ask(control.ConnectionProfile(profile="log"), control.Ok)
    client.create("a")
    state = client.ask(control.ResourceDescribe(), control.DescriptionList).state
    waiting = client.begin(control.ResourceDescribe(resource="a", since=state, wait=20_000))
    rig.broker.users([user("door", "secret", "read x"), user("me", "secret")], rig.now())
    rig.run()
    assert waiting.answered
    client.ask(control.ResourceList(), control.Unauthorized)


def test_a_password_that_is_changed_with_kept_sessions_keeps_profile_and_leases() -> None:
    rig = rig_with(user("me", "secret"))
    client = logged_in(rig, "me")
    client.create("a")
    flow = client.flow(client.writer("a"))
    flow.content(1, b"before")
    rig.broker.users([user("me", "changed")], rig.now())
    unauthorized = client.ask(control.ResourceList(), control.Unauthorized)
    flow.content(2, b"meanwhile")
    authenticate(client, Credentials("me", "changed"), unauthorized)
    flow.content(3, b"after")
    assert client.describe("a").next == 4, "and the profile is still selected"
    with pytest.raises(Refused):
        login(Client(rig), ME)


@pytest.mark.requirement("MTL-29")
@pytest.mark.parametrize("state", ["failed", "challenged", "ready", "profiled"])
def test_a_client_authenticates_in_every_state_after_open(
    monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """Each log-in makes a new token. Only a client with a profile keeps it."""
    monkeypatch.setattr(broker_limits, "MAX_PASSWORD_CHECKS", 1)
    client = Client(rig_with(user("me", "secret"), protected=True))
    client.ask(OPEN, control.Unauthorized)
    if state == "failed":
        client.ask(plainly("me", "wrong"), control.Unauthorized)
    elif state == "challenged":
        client.ask(authorize("SCRAM-SHA-256", ScramClient("me", "x").first().encode()), control.Challenged)
    else:
        authenticate(client, ME, unauthorized_with("SCRAM-SHA-256"))
    if state == "profiled":
        client.ask(control.ConnectionProfile(profile="log"), control.Ok)
    for _ in range(2):
        former = client.session
        assert authenticate(client, ME, unauthorized_with("PLAIN")).session != former
    if state != "profiled":
        assert client.refused(control.ResourceList()).reason == control.NO_PROFILE
        client.ask(control.ConnectionProfile(profile="log"), control.Ok)
    client.create("a")


@pytest.mark.requirement("MTL-29")
def test_a_failed_log_in_of_an_authenticated_client_requires_another_one() -> None:
    """The session loses its rights until then, and keeps its leases."""
    client = logged_in(rig_with(user("me", "secret")), "me")
    client.create("a")
    flow = client.flow(client.writer("a"))
    attempt(client, "me", "wrong")
    client.ask(control.ResourceList(), control.Unauthorized)
    flow.content(1, b"x")
    authenticate(client, ME, unauthorized_with("SCRAM-SHA-256"))
    assert client.describe("a").next == 2


@pytest.mark.requirement("MTL-28")
def test_a_removed_user_loses_session_and_leases() -> None:
    rig = rig_with(user("me", "secret"), user("you", "secret"))
    client, other = logged_in(rig, "me"), logged_in(rig, "you")
    client.create("a")
    lease, kept = client.writer("a"), other.writer("a")
    rig.broker.users([user("you", "secret")], rig.now())
    assert client.flow(kept).lease(lease.lease) == 403
    unauthorized = client.ask(control.ResourceList(), control.Unauthorized)
    with pytest.raises(Refused):
        authenticate(client, ME, unauthorized)
    other.ask(control.ResourceList(), control.DescriptionList)


@pytest.mark.requirement("MTL-29")
def test_a_session_of_another_principal_inherits_no_profile_or_leases() -> None:
    rig = rig_with(user("me", "secret"), user("you", "secret"))
    client = logged_in(rig, "me")
    client.create("a")
    lease = client.writer("a")
    authenticate(client, Credentials("you", "secret"), unauthorized_with("SCRAM-SHA-256"))
    assert client.refused(control.ResourceList()).reason == control.NO_PROFILE
    client.ask(control.ConnectionProfile(profile="log"), control.Ok)
    assert client.refused(control.LeaseClose(lease=lease.lease)).status == 404


def test_a_revoked_key_ends_session_and_leases() -> None:
    rig = rig_with(user("me", keys=["mine"]), protected=True)
    client = Client(rig, Origin("here", "1 mine"))
    login(client, Credentials(key=True))
    client.ask(control.ConnectionProfile(profile="log"), control.Ok)
    client.create("a")
    lease = client.writer("a")
    rig.broker.users([user("me", "secret")], rig.now())
    assert client.ask(control.ResourceList(), control.Unauthorized).mechanisms == ["SCRAM-SHA-256", "PLAIN"]
    assert rig.broker.parts.leases.find(lease.lease) is None


def test_a_key_given_to_another_user_ends_the_session() -> None:
    rig = rig_with(user("me", "secret"), protected=True)
    client = logged_in(rig, "me", origin=Origin("here", "1 key"))
    rig.broker.users([user("me", "secret"), user("you", keys=["key"])], rig.now())
    assert "EXTERNAL" in client.ask(control.ResourceList(), control.Unauthorized).mechanisms


# --- ownership of sessions ----------------------------------------------------------------------------------


def test_an_identity_without_token_is_refused_for_a_user_without_encryption() -> None:
    rig = rig_with(user("me", "secret"))
    client = logged_in(rig, "me")
    token, client.session = client.session, None
    assert client.refused(control.ResourceList()).reason == control.NOT_OPEN
    client.ask(OPEN, control.Unauthorized)
    client.session = token
    client.ask(control.ResourceList(), control.DescriptionList)


@pytest.mark.parametrize("setting", ["protected", "sessions_by_identity"])
def test_an_identity_without_token_is_accepted_if_encrypted_or_configured(setting: str) -> None:
    client = logged_in(rig_with(user("me", "secret"), **{setting: True}), "me")
    client.session = None
    client.ask(control.ResourceList(), control.DescriptionList)


@pytest.mark.parametrize("token", [True, False])
def test_behind_curve_a_session_belongs_to_the_key_that_opened_it(*, token: bool) -> None:
    client = logged_in(rig_with(user("me", "secret"), protected=True), "me", origin=Origin("here", "1 key"))
    if not token:
        client.session = None
    client.ask(control.ResourceList(), control.DescriptionList)
    client.origin = Origin("here", "1 another")
    assert client.refused(control.ResourceList()).reason == control.NOT_OPEN


def test_behind_curve_a_lease_belongs_to_the_key_that_requested_it() -> None:
    client = logged_in(rig_with(user("me", "secret"), protected=True), "me", origin=Origin("here", "1 key"))
    client.create("a")
    lease = client.writer("a")
    flow = client.flow(lease)
    flow.connection = "2 another"
    assert flow.lease(lease.lease) == 403
    flow.connection = "1 key"
    assert flow.lease(lease.lease) == 200
    flow.content(1, b"x")
    assert client.describe("a").next == 2


def test_unauthenticated_sessions_are_evicted_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_limits, "MAX_SESSIONS", 3)
    rig = rig_with(user("me", "secret"))
    client = logged_in(rig, "me")
    for _ in range(10):
        rig.sleep(1)
        Client(rig).ask(OPEN, control.Unauthorized)
    client.ask(control.ResourceList(), control.DescriptionList)


# --- log-ins through a door ---------------------------------------------------------------------------------


def through_door(rig: Rig, name: str, password: str, peer: str) -> control.Ready:
    """Log in as the user `door`, then as the user of its peer."""
    client = Client(rig, Origin("the door"))
    login(client, Credentials("door", "secret"))
    return authenticate(client, Credentials(name, password), unauthorized_with("SCRAM-SHA-256"), peer)


def test_wrong_passwords_through_a_door_count_for_the_address_of_the_peer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_limits, "FAILED_LOGINS", 3)
    rig = rig_with(user("door", "secret", "act-as .*"), user("me", "secret"))
    for _ in range(3):
        with pytest.raises(Refused) as caught:
            through_door(rig, "me", "wrong", "10.0.0.9")
        assert caught.value.status == 401
    with pytest.raises(Refused) as caught:
        through_door(rig, "me", "secret", "10.0.0.9")
    assert caught.value.status == 403
    assert through_door(rig, "me", "secret", "10.0.0.8").user == "me"
    login(Client(rig, Origin("10.0.0.9")), ME)


def test_only_a_door_names_the_address_of_a_peer() -> None:
    """Any other client could guess with another address each time."""
    rig = rig_with(user("door", "secret", "read .*"), user("me", "secret"))
    with pytest.raises(Refused) as caught:
        through_door(rig, "me", "secret", "10.0.0.9")
    assert (caught.value.status, caught.value.reason) == (403, control.NOT_AUTHORIZED)
    client = Client(rig)
    client.ask(OPEN, control.Unauthorized)
    request = control.ConnectionAuthorize(mechanism="SCRAM-SHA-256", response="", peer="10.0.0.9")
    assert client.refused(request).status == 403
