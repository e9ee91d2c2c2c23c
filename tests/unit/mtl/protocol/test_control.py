from __future__ import annotations

import pytest

from mtl.errors import Refused
from mtl.protocol.control import _KINDS, ControlSession, kind_of
from mtl.protocol.states import Control, RequestKind
from mtl.wire import control

OPEN = control.ConnectionOpen(protocol=control.Protocol())
AUTHORIZE = control.ConnectionAuthorize(mechanism="PLAIN", response="")
PROFILE = control.ConnectionProfile(profile="log")
READER = control.ConnectionReader(resources=["a"])
LIST = control.ResourceList()


def session(*steps: tuple[control.Request, int]) -> ControlSession:
    made = ControlSession()
    for request, status in steps:
        made.replied(made.check(request), status)
    return made


def test_requests_outside_of_the_connection_class_belong_to_profiles() -> None:
    connection = {made for name, made in control.REQUESTS.items() if name.startswith("connection.")}
    assert set(_KINDS) == connection
    assert kind_of(LIST) is RequestKind.CLASS


@pytest.mark.requirement("MTL-21", "MTL-26", "MTL-37", "MTL-48")
def test_open_profile_and_lease_in_this_order() -> None:
    made = session((OPEN, 201), (PROFILE, 200), (READER, 202), (LIST, 200))
    assert made.state is Control.PROFILED


@pytest.mark.requirement("MTL-21", "MTL-45", "MTL-52")
@pytest.mark.parametrize(
    ("steps", "request_", "status", "reason"),
    [
        ([], PROFILE, 400, "not-open"),
        ([], READER, 400, "not-open"),
        ([(OPEN, 201)], READER, 400, "no-profile"),
        ([(OPEN, 201)], LIST, 400, "no-profile"),
        ([(OPEN, 401)], PROFILE, 401, "not-authorized"),
        ([(OPEN, 401), (AUTHORIZE, 402)], READER, 401, "not-authorized"),
    ],
)
def test_requests_out_of_turn_are_refused(
    steps: list[tuple[control.Request, int]], request_: control.Request, status: int, reason: str
) -> None:
    with pytest.raises(Refused) as refused:
        session(*steps).check(request_)
    assert (refused.value.status, refused.value.reason) == (status, reason)


@pytest.mark.requirement("MTL-31", "MTL-32", "MTL-33", "MTL-34")
def test_sasl_may_have_several_steps() -> None:
    made = session((OPEN, 401), (AUTHORIZE, 402), (AUTHORIZE, 402), (AUTHORIZE, 201))
    assert made.state is Control.READY


@pytest.mark.requirement("MTL-28", "MTL-29")
def test_a_401_leads_back_to_authentication_from_anywhere() -> None:
    opened, profiled = ((OPEN, 201),), ((OPEN, 201), (PROFILE, 200))
    for steps in [(), opened, ((OPEN, 401), (AUTHORIZE, 402)), profiled]:
        for request in (OPEN, AUTHORIZE, PROFILE, READER, LIST):
            made = session(*steps)
            made.replied(kind_of(request), 401)
            assert made.state is Control.UNAUTHORIZED
    again = session(*profiled, (LIST, 401), (AUTHORIZE, 201), (PROFILE, 200))
    assert again.state is Control.PROFILED


@pytest.mark.requirement("MTL-29")
@pytest.mark.parametrize(
    "steps",
    [
        [(OPEN, 401)],
        [(OPEN, 401), (AUTHORIZE, 401)],
        [(OPEN, 401), (AUTHORIZE, 402)],
        [(OPEN, 201)],
        [(OPEN, 201), (PROFILE, 200)],
    ],
)
@pytest.mark.parametrize(
    ("status", "state"),
    [(201, Control.READY), (402, Control.CHALLENGED), (401, Control.UNAUTHORIZED)],
)
def test_authorize_is_allowed_in_every_state_after_open(
    steps: list[tuple[control.Request, int]], status: int, state: Control
) -> None:
    assert session(*steps, (AUTHORIZE, status)).state is state


@pytest.mark.parametrize("status", [400, 403, 404, 409, 501, 503])
def test_a_refusal_changes_nothing(status: int) -> None:
    assert session((OPEN, 201), (PROFILE, 200), (READER, status)).state is Control.PROFILED
    assert session((OPEN, status)).state is Control.NEW


def test_a_profile_may_be_selected_again() -> None:
    assert session((OPEN, 201), (PROFILE, 200), (PROFILE, 200)).state is Control.PROFILED


@pytest.mark.requirement("MTL-28")
@pytest.mark.parametrize(
    ("steps", "state"),
    [
        ([], Control.NEW),
        ([(OPEN, 401)], Control.UNAUTHORIZED),
        ([(OPEN, 201)], Control.UNAUTHORIZED),
        ([(OPEN, 201), (PROFILE, 200)], Control.UNAUTHORIZED),
    ],
)
def test_a_session_with_changed_credentials_must_authenticate(
    steps: list[tuple[control.Request, int]], state: Control
) -> None:
    made = session(*steps)
    made.suspended()
    assert made.state is state


def test_a_profile_is_kept_by_the_same_user() -> None:
    made = session((OPEN, 401), (AUTHORIZE, 201))
    made.profile_kept()
    assert made.state is Control.PROFILED
    waiting = session((OPEN, 401))
    waiting.profile_kept()
    assert waiting.state is Control.UNAUTHORIZED
