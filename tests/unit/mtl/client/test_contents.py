from __future__ import annotations

from mtl.client.contents import Content
from mtl.wire.commands import TIMESTAMP
from mtl.wire.fields import EMPTY, encode_table


def test_properties_exclude_the_timestamp() -> None:
    table = encode_table({"kind": "new", TIMESTAMP: 1_234_567, "n": 5})
    content = Content("a", 7, table, b"body")
    assert content.properties == {"kind": "new", "n": 5}
    assert content.timestamp == 1_234_567
    assert content.table == table
    assert repr(content) == "Content('a', 7, 4 octets)"


def test_contents_of_a_pack_share_its_timestamp() -> None:
    assert Content("a", 7, EMPTY, b"", 99).timestamp == 99
    assert Content("a", 7, EMPTY, b"", 99).properties == {}


def test_a_missing_or_invalid_timestamp_is_none() -> None:
    assert Content("a", 7, EMPTY, b"").timestamp is None
    assert Content("a", 7, encode_table({TIMESTAMP: "noon"}), b"").timestamp is None
