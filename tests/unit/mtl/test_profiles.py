"""Profiles are declarations, which must be consistent."""

from __future__ import annotations

import pytest

from mtl.profiles import LOG, PROFILES, QUEUE, TEST, CommandClass, Profile


@pytest.mark.requirement("MTL-39")
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


def test_declarations_are_immutable() -> None:
    with pytest.raises(AttributeError):
        PROFILES["log"].name = "other"  # type: ignore[misc]


# --- test ---------------------------------------------------------------------------------------------------


@pytest.mark.requirement("MTL-114", "MTL-115")
def test_profile_test_has_one_resource_and_no_confirmation() -> None:
    assert TEST.fixed_resources == ("resource",)
    assert TEST.confirms == {"none"}
    assert not TEST.durable


@pytest.mark.requirement("MTL-46")
def test_profile_test_readers_may_name_no_or_several_resources() -> None:
    assert TEST.any_reader


def test_profile_test_has_no_own_request_classes() -> None:
    assert not TEST.classes


# --- log ----------------------------------------------------------------------------------------------------


def test_profile_log_is_durable_with_optional_confirmation() -> None:
    assert LOG.durable
    assert LOG.confirms == {"none", "full"}
    assert LOG.fixed_resources == ()


def test_profile_log_readers_name_exactly_one_resource() -> None:
    assert not LOG.any_reader


def test_profile_log_request_classes() -> None:
    assert LOG.classes == {CommandClass.DURABLE, CommandClass.CURSORS}


# --- queue --------------------------------------------------------------------------------------------------


def test_profile_queue_shares_durable_resources_with_log() -> None:
    assert QUEUE.durable
    assert QUEUE.confirms == LOG.confirms
    assert QUEUE.fixed_resources == ()


@pytest.mark.requirement("MTL-46")
def test_profile_queue_readers_compete_for_any_number_of_resources() -> None:
    assert QUEUE.competing
    assert QUEUE.any_reader
    assert not LOG.competing


def test_profile_queue_has_no_cursors() -> None:
    assert QUEUE.classes == {CommandClass.DURABLE}
