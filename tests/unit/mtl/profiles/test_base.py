"""Profiles are declarations; what they say together must make sense."""

from __future__ import annotations

import pytest

from mtl.profiles import PROFILES, Profile
from mtl.wire import control as w

CONNECTION = {w.Open, w.Authorize, w.Profile, w.Reader, w.Writer}


@pytest.mark.requirement("MTL-02", "MTL-39")
def test_every_profile_is_found_by_its_name_in_lower_case() -> None:
    assert set(PROFILES) == {"test", "log", "queue"}
    assert all(name == profile.name == name.lower() for name, profile in PROFILES.items())


@pytest.mark.requirement("MTL-40")
@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda p: p.name)
def test_a_profile_defines_classes_beyond_connection(profile: Profile) -> None:
    assert not profile.classes & CONNECTION
    assert profile.confirms <= {"none", "full"}
    assert profile.confirms
    assert profile.durable is not bool(profile.fixed_resources)


def test_declarations_do_not_change() -> None:
    with pytest.raises(AttributeError):
        PROFILES["log"].name = "other"  # type: ignore[misc]


def test_every_request_belongs_to_connection_or_to_a_profile() -> None:
    of_profiles = {x for profile in PROFILES.values() for x in profile.classes}
    assert set(w.REQUESTS.values()) == CONNECTION | of_profiles
