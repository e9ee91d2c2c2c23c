from __future__ import annotations

from mtl.doors.received import Received


def test_the_content_type_is_a_property() -> None:
    assert Received("orders", 1, b"", {"content-type": "text/plain"}).content_type == "text/plain"
    assert Received("orders", None, b"").content_type is None
