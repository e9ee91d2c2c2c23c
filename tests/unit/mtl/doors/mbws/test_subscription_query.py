from __future__ import annotations

import pytest

from mtl.doors.limits import MBWS_ADDRESSES
from mtl.doors.mbws.codec import Kind
from mtl.doors.mbws.subscription_query import SubscriptionQuery, parse
from mtl.errors import Refused


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/", SubscriptionQuery()),
        ("/any/where", SubscriptionQuery()),
        ("/?address=a", SubscriptionQuery({"a": "latest"})),
        ("/?address=a&from=earliest&address=b&from=5", SubscriptionQuery({"a": "earliest", "b": 5})),
        (f"/?address=a&from={2**63 - 1}", SubscriptionQuery({"a": 2**63 - 1})),
        ("/?address=a%26%C3%BC&from=latest", SubscriptionQuery({"a&ü": "latest"})),
        ("/?frames=text&lengths=characters", SubscriptionQuery(kind=Kind.TEXT, characters=True)),
        ("/?frames=binary&lengths=octets", SubscriptionQuery()),
    ],
)
def test_a_url_is_parsed_to_a_subscription_query(path: str, asked: SubscriptionQuery) -> None:
    assert parse(path) == asked
    assert parse(f"/?{asked.query}" if asked.query else "/") == asked


@pytest.mark.parametrize(
    "query",
    [
        *(
            "address=",
            "address",
            "from=5",
            "address=a&from=0",
            "address=a&from=-1",
            "address=a&from=soon",
            "x=y",
        ),
        *("address=a&address=a", "frames=other", "lengths=", "address=%ff", f"address=a&from={2**63}"),
        *("address=a%00b", "address=%7f", f"address={'a' * 256}"),
        "&".join(f"address={n}&from=1&from=2" for n in range(MBWS_ADDRESSES)),
    ],
)
def test_invalid_queries_are_refused(query: str) -> None:
    with pytest.raises(Refused, match="400") as refused:
        parse(f"/?{query}")
    assert refused.value.reason == "bad-url"


def test_addresses_of_a_query_are_limited() -> None:
    assert (
        len(parse("/?" + "&".join(f"address={n}" for n in range(MBWS_ADDRESSES))).addresses) == MBWS_ADDRESSES
    )
    with pytest.raises(Refused, match="413"):
        parse("/?" + "&".join(f"address={n}" for n in range(MBWS_ADDRESSES + 1)))
