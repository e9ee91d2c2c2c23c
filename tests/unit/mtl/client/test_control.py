from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mtl.client.control import Call, Channel, Outcome
from mtl.client.settings import Settings
from mtl.errors import Closed, ContentTooLarge, Malformed, OptionError, Refused, Unreachable
from mtl.limits import MAX_CONTROL_FRAME
from mtl.wire import control
from tests.support.memory_network import ENDPOINT, Bench

LIST = control.ResourceList()
LISTED = control.DescriptionList(resources=[])


@pytest.fixture
def bench() -> Bench:
    return Bench()


def ask(bench: Bench, request: control.Request | None = LIST, **options: object) -> list[Outcome]:
    outcomes: list[Outcome] = []
    call = Call(request, outcomes.append, **options)  # type: ignore[arg-type]
    bench.channel.submit(call)
    bench.run()
    return outcomes


@pytest.mark.requirement("MTL-21", "MTL-36", "MTL-45")
def test_open_and_profile_are_sent_once_before_the_first_request(bench: Bench) -> None:
    outcomes = ask(bench)
    link = bench.ready()
    assert link.asked() == replace_session(LIST)
    link.answer(LISTED)
    bench.run()
    assert outcomes == [LISTED]
    again = ask(bench)
    assert link.asked() == replace_session(LIST)
    link.answer(LISTED)
    bench.run()
    assert again == [LISTED]
    assert bench.count("request") == 1


@pytest.mark.requirement("MTL-36")
@pytest.mark.parametrize(
    ("offered", "profile", "refusal"),
    [
        (["Log", "test"], "LOG", None),
        (["Log", "test"], "queue", "the server has no profile 'queue'; it offers Log, test"),
        ([], "log", "the server has no profile 'log'; it offers none"),
    ],
)
def test_a_profile_missing_in_the_201_is_not_requested(
    offered: list[str], profile: str, refusal: str | None
) -> None:
    bench = Bench()
    bench.channel.settings = replace(bench.channel.settings, profile=profile)
    outcomes = ask(bench)
    link = bench.last("request")
    link.asked()
    link.answer(control.Ready(profiles=offered))
    bench.run()
    assert bool(link.sent) is (refusal is None)
    if refusal is not None:
        [error] = outcomes
        assert isinstance(error, OptionError), "no server has refused anything"
        assert str(error) == refusal


def replace_session(request: control.Request) -> control.Request:
    return type(request)(session="token")


def test_a_session_can_be_opened_without_a_request(bench: Bench) -> None:
    outcomes = ask(bench, None)
    bench.ready()
    assert outcomes == [control.Ready(profiles=["log"], session="token")]


@pytest.mark.requirement("MTL-04")
def test_requests_are_sent_one_after_the_other(bench: Bench) -> None:
    first, second = ask(bench), ask(bench, control.CursorDescribe())
    link = bench.ready()
    assert isinstance(link.asked(), control.ResourceList)
    link.answer(LISTED)
    bench.run()
    assert isinstance(link.asked(), control.CursorDescribe)
    link.answer(control.CursorList(cursors=[]))
    bench.run()
    assert (first, second) == ([LISTED], [control.CursorList(cursors=[])])


@pytest.mark.requirement("MTL-05")
def test_a_request_without_an_answer_is_repeated_on_a_new_socket(bench: Bench) -> None:
    outcomes = ask(bench)
    first = bench.ready()
    first.asked()
    bench.run(1.1)
    second = bench.last("request")
    assert (first.closed, second is first) == (True, False)
    assert second.asked() == replace_session(LIST), "the token is enough; the session may live"
    second.answer(LISTED)
    bench.run()
    assert outcomes == [LISTED]


@pytest.mark.requirement("MTL-20", "MTL-21")
def test_a_session_without_a_token_ends_with_its_socket(bench: Bench) -> None:
    """A server of the RFC alone identifies the client by its socket's identity, and a new socket has a new one."""
    outcomes = ask(bench)
    first = bench.last("request")
    way: list[control.Reply] = [control.Ready(profiles=["log"]), control.Ok()]
    for reply in way:
        first.asked()
        first.answer(reply)
        bench.run()
    assert first.asked() == LIST
    bench.run(1.1)
    second = bench.last("request")
    assert isinstance(second.asked(), control.ConnectionOpen)
    for reply in [*way, LISTED]:
        second.answer(reply)
        bench.run()
    assert outcomes == [LISTED]


def test_unreachable_names_the_unanswered_command(bench: Bench) -> None:
    outcomes = ask(bench, within=0.5)
    link = bench.last("request")
    assert isinstance(link.asked(), control.ConnectionOpen)
    link.answer(control.Ready(profiles=["log"], session="token"))
    bench.run(5.0)
    assert isinstance(outcomes[0], Unreachable)
    assert "Connection.Profile" in str(outcomes[0])


def test_a_lost_connection_is_replaced_at_once_then_with_growing_pauses(bench: Bench) -> None:
    ask(bench)
    times = []
    for _ in range(8):
        bench.last("request").down()
        before, made = bench.now, bench.count("request")
        while bench.count("request") == made:
            bench.run(0.05)
        times.append(bench.now - before)
    assert times[0] < 0.11
    assert times == sorted(times)
    assert times[-1] == pytest.approx(1.0, abs=0.11)


def test_without_a_broker_a_request_is_unreachable_after_the_deadline(bench: Bench) -> None:
    outcomes = ask(bench)
    bench.run(12.5)
    [error] = outcomes
    assert isinstance(error, Unreachable)
    assert error.endpoint == ENDPOINT
    assert error.waited == pytest.approx(10.0, abs=1.1)
    outcomes = ask(bench, within=0.5)
    bench.run(1.2)
    assert isinstance(outcomes[0], Unreachable)


def test_the_wait_of_a_long_poll_extends_the_request_timeout(bench: Bench) -> None:
    outcomes = ask(bench, patience=30.0)
    link = bench.ready()
    bench.run(30.5)
    assert not link.closed
    link.answer(LISTED)
    bench.run()
    assert outcomes == [LISTED]


def test_a_call_is_pending_while_sent_over_a_live_connection(bench: Bench) -> None:
    call = Call(LIST, lambda _: None, patience=5.0)
    bench.channel.submit(call)
    bench.run()
    bench.last("request").up()
    bench.run()
    counts = [call.in_flight]  # only Connection.Open was sent
    bench.ready()
    counts.append(call.in_flight)
    bench.last("request").down()
    bench.run(1.1)
    counts.append(call.in_flight)  # sent again over a connection that is not up yet
    bench.last("request").up()
    bench.run()
    assert [*counts, call.in_flight] == [False, True, False, True]


def test_a_session_unknown_to_the_broker_is_opened_again(bench: Bench) -> None:
    ask(bench)
    link = bench.ready()
    link.asked()
    link.refuse(400, control.NOT_OPEN)
    bench.run()
    bench.ready()
    assert link.asked() == replace_session(LIST)
    link.refuse(400, control.NO_PROFILE)
    bench.run()
    assert isinstance(link.asked(), control.ConnectionProfile)


def test_a_session_repeatedly_unknown_to_the_broker_is_an_error(bench: Bench) -> None:
    outcomes = ask(bench)
    link = bench.last("request")
    for _ in range(40):
        if outcomes:
            break
        asked = link.asked()
        if isinstance(asked, control.ConnectionOpen):
            link.answer(control.Ready(profiles=["log"]))
        else:
            link.refuse(400, control.NOT_OPEN)
        bench.run()
    assert isinstance(outcomes[0], Refused)


@pytest.mark.parametrize("reason", [control.OVERLOADED, control.READ_ONLY])
def test_a_refusal_is_an_outcome_but_an_overload_is_retried(bench: Bench, reason: str) -> None:
    outcomes = ask(bench)
    link = bench.ready()
    link.asked()
    link.refuse(503, reason)
    bench.run(0.2)
    assert outcomes == []
    link = bench.last("request")
    link.asked()
    link.refuse(404, control.UNKNOWN_RESOURCE, missing=["a"])
    bench.run()
    [error] = outcomes
    assert isinstance(error, Refused)
    assert (error.status, error.reason, error.members) == (404, control.UNKNOWN_RESOURCE, {"missing": ["a"]})


def test_an_overload_until_the_deadline_is_raised_with_its_message(bench: Bench) -> None:
    outcomes = ask(bench, within=1.0)
    link = bench.ready()
    for _ in range(20):
        if outcomes:
            break
        link.asked()
        link.refuse(503, control.OVERLOADED, message="ten cursors are the limit")
        bench.run(0.3)
        link = bench.last("request")
    [error] = outcomes
    assert isinstance(error, Refused)
    assert (error.reason, error.message) == (control.OVERLOADED, "ten cursors are the limit")


def test_silence_after_an_overload_is_unreachable(bench: Bench) -> None:
    outcomes = ask(bench, within=8.0)
    link = bench.ready()
    link.asked()
    link.refuse(503, control.OVERLOADED)
    bench.run(20.0)
    [error] = outcomes
    assert isinstance(error, Unreachable)


@pytest.mark.parametrize(
    ("frames", "words"),
    [
        ((b"200", b"not JSON"), "JSON"),
        ((b"302", b"{}"), "302"),
        ((b"200", b'{"resources": 7}'), "resources"),
    ],
)
def test_a_malformed_answer_is_a_named_error_at_once(
    bench: Bench, frames: tuple[bytes, bytes], words: str
) -> None:
    outcomes = ask(bench)
    link = bench.ready()
    link.asked()
    link.put(*frames)
    bench.run()
    [error] = outcomes
    assert isinstance(error, Malformed)
    assert bench.settings.endpoint in str(error)
    assert words in str(error)
    assert link.closed
    again = ask(bench)
    link = bench.ready()
    link.asked()
    link.refuse(404, control.UNKNOWN_RESOURCE)
    bench.run()
    assert isinstance(again[0], Refused)


def test_a_lease_request_is_repeated_in_a_new_session(bench: Bench) -> None:
    ask(bench, control.ConnectionReader(resources=["a"]), fresh=True)
    link = bench.ready()
    assert isinstance(link.asked(), control.ConnectionReader)
    bench.run(1.1)
    assert isinstance(bench.last("request").asked(), control.ConnectionOpen)


def test_a_request_that_cannot_be_sent_fails_without_an_attempt(bench: Bench) -> None:
    outcomes = ask(bench, control.StageAbort(stages=["x" * 200] * 10_000))
    bench.ready()
    assert isinstance(outcomes[0], ContentTooLarge)
    assert MAX_CONTROL_FRAME < 200 * 10_000
    other = Bench(replace(bench.settings, endpoint="tcp://invalid:1"))
    assert isinstance(ask(other)[0], OptionError)


def test_a_closed_channel_fails_every_request_with_closed(bench: Bench) -> None:
    first, second = ask(bench), ask(bench)
    bench.channel.close()
    third = ask(bench)
    assert [type(outcome) for outcome in first + second + third] == [Closed] * 3
    assert bench.last("request").closed


def test_a_lost_idle_connection_is_replaced_at_the_next_request(bench: Bench) -> None:
    ask(bench)
    link = bench.ready()
    link.asked()
    link.answer(LISTED)
    link.down()
    bench.run(5.0)
    assert (link.closed, bench.count("request")) == (True, 1)
    ask(bench)
    assert bench.last("request").asked() == replace_session(LIST)


# --- authentication -----------------------------------------------------------------------------------------


def login(mechanism: str | None = None, **more: Any) -> Bench:
    settings = {"user": "me", "password": "secret", "sasl_mechanism": mechanism} | more
    return Bench(Settings(ENDPOINT, request_timeout=1.0, retry_deadline=5.0, **settings))


@pytest.mark.requirement("MTL-27", "MTL-29", "MTL-30")
def test_a_401_at_any_time_is_answered_with_credentials() -> None:
    bench = login("PLAIN")
    outcomes = ask(bench)
    link = bench.last("request")
    assert isinstance(link.asked(), control.ConnectionOpen)
    link.answer(control.Unauthorized(mechanisms=["PLAIN"]))
    bench.run()
    authorize = link.asked()
    assert isinstance(authorize, control.ConnectionAuthorize)
    assert authorize.mechanism == "PLAIN"
    link.answer(control.Ready(profiles=["log"], session="token"))
    bench.run()
    link.asked()
    link.answer(control.Ok())
    bench.run()
    link.asked()
    link.answer(control.Unauthorized(mechanisms=["PLAIN"]))
    bench.run()
    assert isinstance(link.asked(), control.ConnectionAuthorize), "credentials may expire at any time"
    link.answer(control.Unauthorized(mechanisms=["PLAIN"]))
    bench.run()
    [error] = outcomes
    assert isinstance(error, Refused)
    assert error.status == 401
    assert "me" in str(error)
    assert "secret" not in str(error) + repr(bench.settings)


@pytest.mark.requirement("MTL-29")
@pytest.mark.parametrize("step", ["profile", "request"])
def test_a_request_answered_by_401_is_repeated_after_the_log_in(step: str) -> None:
    """With the token of the second log-in, and after the profile was selected again."""
    bench = login("PLAIN")
    outcomes = ask(bench)
    link = bench.last("request")

    def answer(kind: type[control.Request], reply: control.Reply) -> control.Request:
        """Answer the next request, which has to be of this kind."""
        request = link.asked()
        assert isinstance(request, kind)
        link.answer(reply)
        bench.run()
        return request

    def log_in(token: str) -> None:
        answer(control.ConnectionAuthorize, control.Ready(profiles=["log"], session=token))

    unauthorized = control.Unauthorized(mechanisms=["PLAIN"])
    answer(control.ConnectionOpen, unauthorized)
    log_in("first")
    if step == "request":
        answer(control.ConnectionProfile, control.Ok())
        assert answer(control.ResourceList, unauthorized).session == "first"
    else:
        answer(control.ConnectionProfile, unauthorized)
    log_in("second")
    answer(control.ConnectionProfile, control.Ok())
    assert outcomes == []
    assert answer(control.ResourceList, LISTED).session == "second"
    assert outcomes == [LISTED]


@pytest.mark.requirement("MTL-28", "MTL-29")
@pytest.mark.parametrize(
    ("answers", "status", "reason"),
    [
        ({control.ResourceList: control.Unauthorized(mechanisms=["PLAIN"])}, 401, control.NOT_AUTHORIZED),
        (
            {control.ConnectionProfile: control.Unauthorized(mechanisms=["PLAIN"])},
            401,
            control.NOT_AUTHORIZED,
        ),
        ({control.ResourceList: Refused(400, control.NOT_OPEN, "no session")}, 400, control.NOT_OPEN),
        ({control.ResourceList: Refused(400, control.NO_PROFILE, "no profile")}, 400, control.NO_PROFILE),
    ],
    ids=["401 to the request", "401 to the profile", "not-open", "no-profile"],
)
def test_a_session_that_ends_again_and_again_is_reported_with_the_servers_status(
    answers: dict[type[control.Request], control.Reply | Refused], status: int, reason: str
) -> None:
    bench = login("PLAIN")
    outcomes = ask(bench)
    link = bench.last("request")
    usual: dict[type[control.Request], control.Reply] = {
        control.ConnectionOpen: control.Unauthorized(mechanisms=["PLAIN"]),
        control.ConnectionAuthorize: control.Ready(profiles=["log"], session="token"),
        control.ConnectionProfile: control.Ok(),
    }
    rounds = 0
    while not outcomes:
        request = link.asked()
        rounds += type(request) in answers
        answer = {**usual, **answers}[type(request)]
        if isinstance(answer, Refused):
            link.refuse(answer.status, answer.reason)
        else:
            link.answer(answer)
        bench.run()
    [error] = outcomes
    assert isinstance(error, Refused)
    assert (error.status, error.reason) == (status, reason)
    assert 3 <= rounds < 20
    assert next(iter(answers)).command in error.message
    assert "again" in error.message


def test_credentials_are_sent_to_a_broker_that_requires_none() -> None:
    """The broker's grants depend on the user, and it has to prove that it has the verifier of the password."""
    bench = login()
    outcomes = ask(bench)
    link = bench.last("request")
    link.asked()
    link.answer(control.Ready(profiles=["log"], session="token"))
    bench.run()
    authorize = link.asked()
    assert isinstance(authorize, control.ConnectionAuthorize)
    assert (authorize.mechanism, authorize.session) == ("SCRAM-SHA-256", "token")
    link.answer(control.Ready(profiles=["log"], session="token"))
    bench.run()
    [error] = outcomes
    assert isinstance(error, Refused)
    assert "proof" in str(error)


def test_a_password_that_cannot_be_read_is_an_error_of_the_request() -> None:
    bench = login(password=None, password_env="MTL_NO_SUCH_VARIABLE")
    outcomes = ask(bench)
    link = bench.last("request")
    link.asked()
    link.answer(control.Unauthorized(mechanisms=["SCRAM-SHA-256"]))
    bench.run()
    [error] = outcomes
    assert isinstance(error, OptionError)
    assert "environment variable" in str(error)
    assert "MTL_NO_SUCH_VARIABLE" not in str(error), "the text may be the password"


def test_channels_are_members_of_the_loop_until_closed(bench: Bench) -> None:
    outcomes = ask(bench)
    assert bench.channel in bench.loop.members
    bench.channel.abandoned(Closed("the end"))
    assert bench.channel not in bench.loop.members
    assert isinstance(outcomes[0], Closed)
    assert isinstance(bench.channel, Channel)


def test_a_cancelled_call_does_not_delay_the_next_one(bench: Bench) -> None:
    """Its application was interrupted while no broker answered."""
    first, second, third = (Call(LIST, lambda _: None) for _ in range(3))
    outcomes: list[Outcome] = []
    last = Call(LIST, outcomes.append)
    for call in (first, second, third, last):
        bench.channel.submit(call)
    bench.channel.cancel(second)
    bench.channel.cancel(first)
    bench.channel.cancel(second)
    bench.channel.cancel(third)
    link = bench.ready()
    assert link.asked() == control.ResourceList(session="token")
    link.answer(LISTED)
    bench.run()
    assert outcomes == [LISTED]


def test_a_call_that_is_with_the_broker_is_not_cancelled(bench: Bench) -> None:
    outcomes: list[Outcome] = []
    call = Call(LIST, outcomes.append)
    bench.channel.submit(call)
    bench.run()
    bench.last("request").up()
    link = bench.ready()
    bench.channel.cancel(call)
    link.asked()
    link.answer(LISTED)
    bench.run()
    assert outcomes == [LISTED]
