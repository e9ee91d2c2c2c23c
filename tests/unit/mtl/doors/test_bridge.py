"""A door's way to the broker: subscriptions that fail."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mtl import Content
from mtl.doors.bridge import Subscription
from mtl.errors import Fenced, MtlError
from tests.support.aio import in_loop


class FailedSource:
    """A reader whose lease has ended."""

    async def next(self) -> Content | None:
        raise Fenced("another reader has the group")

    async def some(self, contents: int, octets: int) -> Sequence[Content]:
        raise Fenced("another reader has the group")

    async def close(self) -> None:
        """It is."""


@in_loop
async def test_a_failed_subscription_is_reported_and_raises_until_it_is_closed() -> None:
    reported: list[MtlError] = []
    ended: list[bool] = []
    subscription = Subscription(FailedSource(), lambda: ended.append(True), reported.append)
    with pytest.raises(Fenced):
        await subscription.some()
    assert [type(error) for error in reported] == [Fenced]
    await subscription.close()
    await subscription.close()
    assert ended == [True]
    with pytest.raises(Fenced):
        await subscription.some()
    assert len(reported) == 1, "a closed subscription is not reported"
