from __future__ import annotations

from mtl.doors.limits import DOOR_RUN_CONTENTS, DOOR_RUN_OCTETS
from mtl.doors.runs import ContentRun


def test_a_run_is_bounded_by_octets_of_bodies_and_properties() -> None:
    run = ContentRun("orders")
    half = bytes(DOOR_RUN_OCTETS // 2 - 1)
    run.add(half, b"t")
    assert run.fits(half, b"t")
    run.add(half, b"t")
    assert not run.fits(b"", b"t")
    assert (len(run.bodies), run.tables, run.octets) == (2, [b"t", b"t"], DOOR_RUN_OCTETS)


def test_a_run_is_bounded_by_contents() -> None:
    run = ContentRun("orders")
    for _ in range(DOOR_RUN_CONTENTS):
        assert run.fits(b"", b"")
        run.add(b"", b"")
    assert not run.fits(b"", b"")


def test_the_first_content_of_a_run_may_have_any_size() -> None:
    assert ContentRun("orders").fits(bytes(2 * DOOR_RUN_OCTETS), b"")
