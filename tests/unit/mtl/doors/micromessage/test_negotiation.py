from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mtl.doors.limits import MM2_EXTENSIONS, MM2_WINDOW
from mtl.doors.micromessage.codec import Handshake
from mtl.doors.micromessage.door import OFFER
from mtl.doors.micromessage.negotiation import (
    SUPPORTED,
    Extension,
    ExtensionOffer,
    agreed,
    batch_ack,
    check_known,
    common_minor,
    decode_list,
    encode_list,
    final,
)
from mtl.errors import Malformed, Refused
from tests.unit.mtl.doors.micromessage.test_values import FIELDS, TEXT


def offer(required: str, optional: str = "") -> ExtensionOffer:
    return ExtensionOffer.of(Handshake("who", required, optional))


def lists(of: ExtensionOffer) -> tuple[str, str]:
    return encode_list(of.required), encode_list(of.optional)


@pytest.mark.requirement("MM2-15", "MM2-16")
@given(
    st.lists(
        st.builds(Extension, FIELDS, st.dictionaries(FIELDS, TEXT, max_size=3)),
        max_size=5,
        unique_by=lambda extension: extension.name,
    )
)
def test_an_encoded_list_is_decoded(extensions: list[Extension]) -> None:
    assert decode_list(encode_list(extensions)) == tuple(extensions)


@pytest.mark.requirement("MM2-15", "MM2-16")
def test_the_lists_of_the_document() -> None:
    assert decode_list("json;xml;protobuf") == (Extension("json"), Extension("xml"), Extension("protobuf"))
    (extension,) = decode_list("extensionName1:propName1=propValue2,propName2=Hello%20%25%20you!;")
    assert extension.properties == {"propName1": "propValue2", "propName2": "Hello % you!"}
    assert decode_list("batch-ack:max-count:100;") == (batch_ack(100),)
    assert encode_list([batch_ack(10), Extension("json")]) == "batch-ack:max-count=10;json"
    assert decode_list("") == ()


@pytest.mark.parametrize(
    "text", ["json;json", ";json", "a b", "json:x", ";".join(f"x-{n}" for n in range(MM2_EXTENSIONS + 1))]
)
def test_text_that_is_not_a_list_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        decode_list(text)


@pytest.mark.requirement("MM2-15")
def test_a_list_of_the_most_extensions_is_decoded() -> None:
    names = [f"x-{number}" for number in range(MM2_EXTENSIONS)]
    assert [extension.name for extension in decode_list(";".join(names))] == names


@pytest.mark.requirement("MM2-15")
@pytest.mark.parametrize("separator", ["=", ":"])
def test_the_name_of_a_property_in_upper_case_is_read_whole(separator: str) -> None:
    (extension,) = decode_list(f"batch-ack:MAX-COUNT{separator}7")
    assert extension.properties == {"MAX-COUNT": "7"}


@pytest.mark.requirement("MM2-07", "MM2-14", "MM2-23")
@pytest.mark.parametrize(
    ("client", "server", "last"),
    [
        (offer("json;dotnet"), offer("", "batch-ack"), ("json;dotnet", "")),
        (
            offer("json;dotnet", "batch-ack"),
            offer("", "batch-ack"),
            ("json;dotnet", "batch-ack:max-count=10"),
        ),
        (offer("json", "dotnet;ack"), offer("pub-sub", "ack;json"), ("json;pub-sub", "ack")),
        (offer("json", "pub-sub"), offer("pub-sub"), ("json;pub-sub", "")),
        (offer("", "x-theirs"), offer("", "x-theirs"), ("", "")),
    ],
)
def test_extensions_required_by_either_or_offered_by_both_are_agreed(
    client: ExtensionOffer, server: ExtensionOffer, last: tuple[str, str]
) -> None:
    assert lists(final(client, server)) == last


@pytest.mark.requirement("MM2-26")
def test_ids_are_positions_in_the_final_lists() -> None:
    found = agreed(offer("json;dotnet", "batch-ack"), offer("", "batch-ack"), 0)
    assert found.ids == {"json": 1, "dotnet": 2, "batch-ack": 3}
    assert (found.ack_id, found.window) == (3, 10)
    assert "json" in found
    assert "pub-sub" not in found


@pytest.mark.requirement("MM2-50")
@pytest.mark.parametrize(
    ("client", "server", "window"),
    [
        ("batch-ack", "batch-ack:max-count=500", 10),
        ("batch-ack:max-count=20", "batch-ack", 10),
        ("batch-ack:max-count=20", "batch-ack:max-count=500", 20),
        ("batch-ack:count=20", "batch-ack:batch-max=15", 15),
        ("batch-ack:max-count:20", "batch-ack:max-count=500", 20),
        ("batch-ack:max-count=60000", "batch-ack:max-count=60000", MM2_WINDOW),
        ("batch-ack:max-count=0000000020", "batch-ack:max-count=500", 20),
        ("batch-ack:max-count=" + "9" * 5_000, "batch-ack:max-count=60000", MM2_WINDOW),
    ],
)
def test_the_smaller_count_is_agreed(client: str, server: str, window: int) -> None:
    last = final(offer(client), offer("", server))
    assert agreed(last, offer("", server), 0).window == window


@pytest.mark.requirement("MM2-04", "MM2-05")
@pytest.mark.parametrize(
    ("last", "window", "ack_id"),
    [
        ("json", None, None),
        ("ack", 1, 1),
        ("json;ack;batch-ack", 1, 2),
        ("batch-ack:max-count=7;ack", 7, 1),
    ],
)
def test_the_first_kind_of_acknowledgement_is_agreed(
    last: str, window: int | None, ack_id: int | None
) -> None:
    found = agreed(offer(last), offer("", "json;ack;batch-ack"), 0)
    assert (found.window, found.ack_id) == (window, ack_id)


@pytest.mark.requirement("MM2-12", "MM2-13")
def test_a_required_extension_unknown_to_the_other_end_is_refused() -> None:
    with pytest.raises(Refused, match="x-other"):
        check_known(decode_list("json;x-other"))
    with pytest.raises(Refused, match="x-other"):
        final(offer("json"), offer("x-other"))
    with pytest.raises(Refused, match="pub-sub"):
        agreed(offer("json"), offer("pub-sub"), 0)
    with pytest.raises(Refused, match="x-other"):
        agreed(offer("json", "x-other"), offer("", "json"), 0)
    with pytest.raises(Refused, match="10 was offered"):
        agreed(offer("batch-ack:max-count=11"), offer("", "batch-ack"), 0)


@pytest.mark.requirement("MM2-54")
def test_the_door_offers_pub_sub_without_properties() -> None:
    assert Extension("pub-sub") in OFFER.optional
    assert "pub-sub" in encode_list(OFFER.optional).split(";")


@pytest.mark.requirement("MM2-09")
def test_vendor_extensions_are_refused() -> None:
    check_known(decode_list(";".join(sorted(SUPPORTED))))
    for name in ["x-" + official for official in SUPPORTED]:
        with pytest.raises(Refused, match=name):
            check_known(decode_list(name))


@pytest.mark.parametrize("count", ["0", "-1", "x", "", "1.5", "\u0661", "0" * 20])
def test_an_invalid_count_is_malformed(count: str) -> None:
    with pytest.raises(Malformed):
        final(ExtensionOffer((Extension("batch-ack", {"max-count": count}),)), ExtensionOffer())


@pytest.mark.requirement("MM2-01", "MM2-11")
def test_the_lower_minor_version_is_agreed_and_another_major_refused() -> None:
    assert common_minor(Handshake("x", minor=9)) == 0
    for major, proposes in ((0, False), (0, True), (2, False)):
        with pytest.raises(Refused, match=r"1\.x is expected"):
            common_minor(Handshake("x", major=major), proposes=proposes)
    assert common_minor(Handshake("x", major=2, minor=9), proposes=True) == 0
