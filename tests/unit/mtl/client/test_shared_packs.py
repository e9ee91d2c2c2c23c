from __future__ import annotations

import gc
import mmap
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.client.shared_packs import Allocator, SharedPacks
from mtl.errors import FieldError
from mtl.limits import MAX_PACK
from mtl.net.shared import Lent
from mtl.wire.packs import decode_pack, encode_batch
from mtl.wire.ranges import SHARED_FROM
from tests.support.contents import batch

SIZE = 1 << 16


@pytest.fixture
def shared() -> Iterator[tuple[Lent, SharedPacks]]:
    lent = Lent(SIZE)
    memory = SharedPacks.of(lent.place)
    assert memory is not None
    yield lent, memory
    lent.close()


def rows(octets: int, fill: bytes = b"x") -> pa.RecordBatch:
    return batch([fill * octets])


# --- which octets are taken ---------------------------------------------------------------------------------


@given(st.lists(st.one_of(st.integers(1, 400), st.none()), max_size=60), st.data())
def test_spaces_never_overlap_and_returned_ones_are_reused(
    steps: list[int | None], data: st.DataObject
) -> None:
    """A number allocates this many octets, None returns one of the allocated spaces."""
    spaces, held = Allocator(64, 1_024), dict[int, int]()
    for size in steps:
        if size is None:
            if held:
                begin = data.draw(st.sampled_from(sorted(held)))
                del held[begin]
                spaces.free(begin)
            continue
        taken = spaces.allocate(size)
        gaps = [64, *(begin + length for begin, length in held.items())]
        if taken is None:
            ends = [end + -end % 64 for end in gaps]
            assert not any(fits(end, size, held) for end in ends)
        else:
            assert taken % 64 == 0
            assert fits(taken, size, held)
            held[taken] = size
    for begin in held:
        spaces.free(begin)
    assert spaces.allocate(1_024 - 64) == 64


def fits(begin: int, size: int, held: dict[int, int]) -> bool:
    end = begin + size + -size % 64
    return begin >= 64 and end <= 1_024 and all(end <= b or b + n + -n % 64 <= begin for b, n in held.items())


# --- packs --------------------------------------------------------------------------------------------------


def test_a_pack_in_shared_memory_equals_the_sent_form(shared: tuple[Lent, SharedPacks]) -> None:
    lent, memory = shared
    pack = memory.encode(rows(5_000), MAX_PACK)
    assert pack is not None
    span = memory.span(pack)
    assert span is not None

    assert pack.to_pybytes() == bytes(lent.octets(span)) == encode_batch(rows(5_000)).to_pybytes()
    assert decode_pack(lent.octets(span), 1).column("body").to_pylist() == [b"x" * 5_000]


def test_packs_keep_their_space_while_referenced(shared: tuple[Lent, SharedPacks]) -> None:
    _, memory = shared
    packs = [memory.encode(rows(9_000, b"%d" % n), MAX_PACK) for n in range(8)]
    made = [pack for pack in packs if pack is not None]
    assert len(made) == 4  # each may take 4 KiB more than it does
    assert packs[4:] == [None] * 4

    places = [memory.span(pack) for pack in made]
    contents = [pack.to_pybytes() for pack in made]
    view = memoryview(made.pop(1))
    packs.clear()
    gc.collect()
    assert memory.encode(rows(9_000), MAX_PACK) is None
    view.release()
    again = memory.encode(rows(9_000), MAX_PACK)

    assert memory.span(again) == places[1]
    del contents[1]
    assert [pack.to_pybytes() for pack in made] == contents


def test_a_pack_outlives_its_shared_memory(shared: tuple[Lent, SharedPacks]) -> None:
    _, memory = shared
    pack = memory.encode(rows(100), MAX_PACK)
    assert pack is not None
    other_lent = Lent(SIZE)
    other = SharedPacks.of(other_lent.place)
    other_lent.close()
    assert other is not None
    del memory, shared
    gc.collect()

    assert pack.to_pybytes() == encode_batch(rows(100)).to_pybytes()
    assert other.span(pack) is None


def test_rows_that_cannot_be_encoded_use_no_space(shared: tuple[Lent, SharedPacks]) -> None:
    _, memory = shared
    null = pa.RecordBatch.from_arrays([pa.nulls(1, pa.binary())] * 2, names=["properties", "body"])
    for _ in range(100):
        with pytest.raises(FieldError):
            memory.encode(null, MAX_PACK)
    pack = memory.encode(rows(50_000), MAX_PACK)

    assert pack is not None
    span = memory.span(pack)
    assert span is not None
    assert SHARED_FROM < span.offset < 1_024


def test_octets_outside_of_the_memory_have_no_span(shared: tuple[Lent, SharedPacks]) -> None:
    _, memory = shared
    assert memory.span(b"x" * 100) is None
    assert memory.span(pa.py_buffer(b"x" * 100)) is None
    assert memory.span(pa.py_buffer(mmap.mmap(-1, 100))) is None


def test_without_a_valid_place_no_memory_is_shared(shared: tuple[Lent, SharedPacks]) -> None:
    lent, _ = shared
    lent.place = lent.place.__class__(file="/proc/1/fd/1", size=SIZE, key=lent.place.key)
    assert SharedPacks.of(lent.place) is None
    assert SharedPacks.of(None) is None
