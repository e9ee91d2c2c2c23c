"""The `log` profile's declaration (PROTOCOL.md 5)."""

from __future__ import annotations

from mtl.profiles import LOG, CommandClass


def test_it_is_durable_and_confirms_if_asked() -> None:
    assert LOG.durable
    assert LOG.confirms == {"none", "full"}
    assert LOG.fixed_resources == ()


def test_a_reader_names_exactly_one_resource() -> None:
    assert not LOG.any_reader


def test_its_classes() -> None:
    assert LOG.classes == {CommandClass.DURABLE, CommandClass.CURSORS}
