"""Profiles are declarations; what they say together must make sense."""

from __future__ import annotations

import pytest

from mtl.profiles import PROFILES, CommandClass, Profile


@pytest.mark.requirement("MTL-02", "MTL-39")
def test_every_profile_is_found_by_its_name_in_lower_case() -> None:
    assert set(PROFILES) == {"test", "log", "queue"}
    assert all(name == profile.name == name.lower() for name, profile in PROFILES.items())


@pytest.mark.requirement("MTL-40")
@pytest.mark.parametrize("profile", PROFILES.values(), ids=lambda p: p.name)
def test_a_profile_defines_classes_beyond_connection(profile: Profile) -> None:
    assert CommandClass.CONNECTION not in profile.classes
    assert profile.confirms <= {"none", "full"}
    assert profile.confirms
    assert profile.durable is not bool(profile.fixed_resources)


def test_declarations_do_not_change() -> None:
    with pytest.raises(AttributeError):
        PROFILES["log"].name = "other"  # type: ignore[misc]
