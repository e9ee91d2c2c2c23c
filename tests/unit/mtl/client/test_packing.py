from __future__ import annotations

import pytest

from mtl.client.handover import Handover, Item
from mtl.client.limits import LINGER_S, PACK_TARGET_CONTENTS
from mtl.client.packing import Packing
from mtl.errors import ContentTooLarge
from mtl.wire.commands import packed_properties
from mtl.wire.fields import EMPTY
from mtl.wire.packs import trust_pack, unpack
from tests.support.memory_network import Bench

MAX_PACK = 1 << 20


class Setting:
    def __init__(self) -> None:
        self.bench = Bench()
        self.handover = Handover(0)
        self.published: list[tuple[str, list[bytes], int]] = []
        self.due = 0
        self.packing = Packing(self.bench.loop, self.publish, self.called)

    def publish(self, resource: str, properties: bytes, body: object, count: int, size: int) -> None:
        whole = properties != packed_properties(count)
        bodies = [body] if whole else [bytes(x) for _, x in unpack(trust_pack(body))]
        self.published.append((resource, bodies, size))  # type: ignore[arg-type]

    def called(self) -> None:
        self.due += 1
        self.packing.finish(MAX_PACK)

    def items(self, *bodies: bytes, resource: str = "a", whole: bool = False) -> list[Item]:
        for body in bodies:
            self.handover.publish(resource, EMPTY, body, 1, len(body), whole=whole)
        return self.handover.take(len(bodies))


def test_contents_are_collected_until_the_linger_is_over() -> None:
    at = Setting()
    at.packing.add(at.items(b"1", b"22"), MAX_PACK)
    at.packing.add(at.items(b"3"), MAX_PACK)
    assert (at.published, at.packing.open) == ([], True)
    at.bench.run(2 * LINGER_S)
    assert at.published == [("a", [b"1", b"22", b"3"], 4)]
    assert (at.due, at.packing.open) == (1, False)
    at.bench.run(2 * LINGER_S)
    assert at.due == 1


def test_another_resource_a_whole_item_and_a_full_pack_end_a_pack() -> None:
    at = Setting()
    at.packing.add(at.items(b"1") + at.items(b"2", resource="b"), MAX_PACK)
    at.packing.add(at.items(b"3", resource="b", whole=True), MAX_PACK)
    assert [bodies for _, bodies, _ in at.published] == [[b"1"], [b"2"], [b"3"]]
    at.published.clear()
    at.packing.add(at.items(*[b"x"] * (PACK_TARGET_CONTENTS + 1)), MAX_PACK)
    assert [len(bodies) for _, bodies, _ in at.published] == [PACK_TARGET_CONTENTS]
    at.packing.finish(MAX_PACK)
    assert [len(bodies) for _, bodies, _ in at.published] == [PACK_TARGET_CONTENTS, 1]


def test_a_content_above_the_limit_of_a_later_lease_is_an_error() -> None:
    at = Setting()
    at.packing.add(at.items(bytes(1_000_000)), 100_000)
    with pytest.raises(ContentTooLarge):
        at.packing.finish(100_000)
