from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.client.contents import Content
from mtl.doors.micromessage.codec import MessageFrame, MicroDecoder, encode
from mtl.doors.micromessage.contents import from_message, to_message
from mtl.doors.micromessage.filters import decode_filter
from mtl.doors.micromessage.negotiation import DOTNET
from mtl.doors.micromessage.property_cache import PropertyCache, TableCache
from mtl.doors.micromessage.session import MessageArrived
from mtl.doors.micromessage.values import encode_properties
from mtl.errors import Refused
from mtl.wire import fields
from tests.unit.mtl.doors.micromessage.test_contents import agreed

SAID = st.dictionaries(st.sampled_from(["a", "b"]), st.sampled_from([1, "x"]), max_size=2)


@given(st.lists(st.tuples(SAID, st.sampled_from([None, "A.Type"])), max_size=8))
def test_cached_properties_equal_those_of_single_messages(
    messages: list[tuple[dict[str, int | str], str | None]],
) -> None:
    tables, with_types, keep = TableCache(), agreed(DOTNET), decode_filter("a=N1")
    labels, decoder = PropertyCache(keep, with_types), MicroDecoder()
    for number, (properties, kind) in enumerate(messages, 1):
        decoder.feed(encode(MessageFrame(number, "q", b"", properties)))
        message = decoder.frame()
        assert isinstance(message, MessageFrame)
        arrived = MessageArrived(message.destination, message.properties, b"", kind)
        stored = from_message(arrived, with_types)
        table = tables.of(arrived, with_types)
        assert fields.decode_table(table) == stored
        expected, type_ = to_message(stored, with_types)
        label = labels.of(Content("q", number, table, b""))
        assert (label is not None) is (properties.get("a") == 1)
        assert label in {None, (encode_properties({**expected, "mtl-sequence": number}), type_)}


def test_reserved_properties_are_refused_each_time() -> None:
    tables = TableCache()
    for _ in range(2):
        with pytest.raises(Refused, match="broker's"):
            tables.of(MessageArrived("q", {"mtl-sequence": 1}, b""), agreed())
