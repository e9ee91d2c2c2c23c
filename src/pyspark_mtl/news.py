"""What a query's resources look like now, asked of the broker once for many triggers.

A trigger that finds nothing new costs no request: one question stays with the broker, which answers it when there is
news, when a resource that it names is deleted, or when its time is up. Until then what was found last still holds, but
for what retention took and, with a pattern, for what was deleted; a batch's planning looks again. While something that
is named does not exist every trigger looks for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from mtl.errors import Refused
from mtl.wire.control import UNKNOWN_RESOURCE, Description
from pyspark_mtl.limits import NEWS_WAIT_S

if TYPE_CHECKING:
    from mtl.client import Connection, Watch

Found = dict[str, Description]


class News:
    """Looks at the resources of `names`, or at those that match `pattern`. `broker` is asked for with every request."""

    def __init__(
        self, broker: Callable[[], Connection], names: Sequence[str] | None, pattern: str | None
    ) -> None:
        self._broker = broker
        self._names = names
        self._pattern = pattern
        self._found: Found | None = None
        self._asked: tuple[dict[str, int], Watch] | None = None

    def look(self, after: Mapping[str, int] | None, wait: float) -> Found:
        """Those that exist. With `after` it waits, up to `wait` seconds, until one's `next` is above the one named, or
        one is there that is not named.
        """
        if after is None or not wait or self._found is None or set(self._names or ()) - set(self._found):
            self._found = describe(self._broker(), self._names, self._pattern, after, wait)
            return self._found
        try:
            news = self._watch(after).news(wait)
        except Refused as refused:
            self._asked = None
            if refused.reason != UNKNOWN_RESOURCE:
                raise
            news = describe(self._broker(), self._names, self._pattern, after, wait)
        if news is not None:
            self._found, self._asked = news, None
        return self._found

    def _watch(self, after: Mapping[str, int]) -> Watch:
        """The question that is under way, or a new one. It changes only with an answer, which moves `after`."""
        if self._asked is None or self._asked[0] != after:
            watch = self._broker().watch(self._names, self._pattern, after=after, wait=NEWS_WAIT_S)
            self._asked = (dict(after), watch)
        return self._asked[1]


def describe(
    broker: Connection,
    names: Sequence[str] | None,
    pattern: str | None = None,
    after: Mapping[str, int] | None = None,
    wait: float = 0.0,
) -> Found:
    """Those of `names` that exist, or those that match `pattern`; waits as `News.look` does."""
    try:
        return broker.describe(names, pattern, after=after, wait=wait)
    except Refused as refused:
        if names is None or refused.reason != UNKNOWN_RESOURCE:
            raise
    # A pattern finds what is there and waits for what is not.
    return broker.describe(pattern="|".join(map(re.escape, names)), after=after, wait=wait)
