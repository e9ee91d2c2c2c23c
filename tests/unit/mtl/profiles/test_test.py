"""The `test` profile's declaration, as RFC 11 has it. Its behaviour: tests/unit/mtl/broker/reading/test_fanout.py."""

from __future__ import annotations

import pytest

from mtl.profiles import TEST


@pytest.mark.requirement("MTL-114", "MTL-115")
def test_it_has_one_resource_and_never_confirms() -> None:
    assert TEST.fixed_resources == ("resource",)
    assert TEST.confirms == {"none"}
    assert not TEST.durable


@pytest.mark.requirement("MTL-46")
def test_a_reader_may_name_none_or_several() -> None:
    assert TEST.any_reader


def test_it_has_no_classes_of_its_own() -> None:
    assert not TEST.classes
