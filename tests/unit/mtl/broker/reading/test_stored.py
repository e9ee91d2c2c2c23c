"""Stored octets are decoded, or reported as damage."""

from __future__ import annotations

import pytest

from mtl.broker.reading.stored import stored_pack
from mtl.errors import Damaged
from mtl.log.change import ChunkRef
from mtl.wire.packs import encode_pack, unpack


def ref(count: int) -> ChunkRef:
    return ChunkRef(5, count, 0, 0, 0, 1, 0, 0)


def test_a_stored_pack_is_decoded() -> None:
    pack = stored_pack(ref(2), encode_pack([b"x", b"y"]))
    assert [bytes(body) for _, body in unpack(pack)] == [b"x", b"y"]


@pytest.mark.parametrize(
    ("body", "what"),
    [
        (bytes(encode_pack([b"x"])), "stored as 1 contents"),
        (b"no pack", "stored as a pack that Arrow refuses"),
        (b"", "stored as a pack that Arrow refuses"),
    ],
)
def test_an_undecodable_pack_is_damage_with_its_position(body: bytes, what: str) -> None:
    with pytest.raises(Damaged, match=f"contents 5 to 6 are {what}.*mtl verify") as raised:
        stored_pack(ref(2), body)
    assert (raised.value.first, raised.value.end) == (5, 7)
