"""What a query's resources look like now, asked of the broker once for many triggers.

The first trigger that finds nothing new leaves its question with the broker, so that those that follow cost no request:
it is answered when there is news, when a resource that was found is deleted, or when its time is up. Until then, and
while the connection that it went over is up, what was found last still holds, but for what retention took; a batch's
planning looks again. While something that is named does not exist every trigger looks for it.
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
        self._found: Found = {}
        self._asked: tuple[dict[str, int], Watch] | None = None

    def look(self, after: Mapping[str, int] | None, wait: float) -> Found:
        """Those that exist. With `after` it waits, up to `wait` seconds, until one's `next` is above the one named, or
        one is there that is not named; and the question stays with the broker.
        """
        asked = self._asked
        if after is None or asked is None or asked[0] != after:
            return self._ask(after, wait)
        try:
            news = asked[1].news(wait)
        except Refused as refused:
            if refused.reason != UNKNOWN_RESOURCE:
                raise
            return self._ask(after, wait)
        if news is not None:
            self._found, self._asked = news, None
        elif not asked[1].stands:  # the broker may have begun anew meanwhile, and know more
            return self._ask(after, wait)
        return self._found

    def is_silent(self, wait: float) -> bool:
        """Whether `look` left a question with the broker that stands, and has no answer within `wait` seconds: then it
        would find again what it found last.
        """
        return self._asked is not None and self._asked[1].is_silent(wait)

    def _ask(self, after: Mapping[str, int] | None, wait: float) -> Found:
        """Ask now. Where there is nothing new, leave the question with the broker for the triggers that follow."""
        self._asked = None
        found = self._found = describe(self._broker(), self._names, self._pattern, after, wait)
        if after is not None and not _news(found, after) and found.keys() >= set(self._names or ()):
            watch = self._broker().watch(self._names, self._pattern, after=after, wait=NEWS_WAIT_S)
            self._asked = (dict(after), watch)
        return found


def _news(found: Found, after: Mapping[str, int]) -> bool:
    return any(name not in after or one.next > after[name] for name, one in found.items())


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
