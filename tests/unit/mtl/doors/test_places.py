"""Where doors listen unless told otherwise: side by side, on one machine."""

from __future__ import annotations

from mtl.broker.config import DEFAULT_ENDPOINT
from mtl.doors.mc0.door import DEFAULT_LISTEN as MC0
from mtl.doors.micromessage.door import DEFAULT_LISTEN as MICROMESSAGE
from mtl.doors.reactive.door import DEFAULT_LISTEN as REACTIVE


def test_no_two_doors_listen_at_the_same_place() -> None:
    ports = [place.rpartition(":")[2] for place in (DEFAULT_ENDPOINT, MC0, MICROMESSAGE, REACTIVE)]

    assert len(set(ports)) == len(ports)
