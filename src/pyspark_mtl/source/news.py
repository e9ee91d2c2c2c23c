"""What a query's resources look like now, asked of the broker once for many triggers.

The first trigger that finds nothing new leaves its question with the broker, so that those that follow cost no request:
it is answered when there is news (a resource has more contents, is new, is not there any more or was made again), or
when its time is up. Until then, and while the connection that it went over is up, what was found last still holds, but
for what retention took; a batch's planning looks again. The question says what the query knows, so that it is answered
at once where that is wrong already. While something that is named does not exist every trigger looks for it.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mtl.errors import Refused
from mtl.wire.control import STORAGE, UNKNOWN_RESOURCE, Description
from pyspark_mtl.limits import NEWS_WAIT_S, STOPPED_RETRY_S
from pyspark_mtl.source.offsets import Position

if TYPE_CHECKING:
    from mtl.client import Connection, Watch

Found = dict[str, Description]

Known = Mapping[str, Position]
"""The resources that a query knows: which incarnation, and up to where there is no news."""


class News:
    """Looks at the resources of `names`, or at those that match `pattern`. `broker` is asked for with every request."""

    def __init__(
        self, broker: Callable[[], Connection], names: Sequence[str] | None, pattern: str | None
    ) -> None:
        self._broker = broker
        self._names = names
        self._pattern = pattern
        self._found: Found = {}
        self._asked: tuple[dict[str, Position], Watch] | None = None

    def look(self, known: Known | None, wait: float) -> Found:
        """Those that exist. With `known` it waits, up to `wait` seconds, until one's `next` is above the one known, one
        is there that is not known, or a known one is not there or has another incarnation; and the question stays with
        the broker.
        """
        asked = self._asked
        if known is None or asked is None or asked[0] != known:
            return self._ask(known, wait)
        try:
            news = asked[1].news(wait)
        except Refused as refused:
            if refused.reason != UNKNOWN_RESOURCE:
                raise
            return self._ask(known, wait)
        if news is not None and next(_unknown(news), None) is not None:
            return self._ask(known, wait)
        if news is not None:
            self._found, self._asked = news, None
        elif not asked[1].stands:  # the broker may have begun anew meanwhile, and know more
            return self._ask(known, wait)
        return self._found

    def is_silent(self, wait: float) -> bool:
        """Whether `look` left a question with the broker that stands, and has no answer within `wait` seconds: then it
        would find again what it found last.
        """
        return self._asked is not None and self._asked[1].is_silent(wait)

    def _ask(self, known: Known | None, wait: float) -> Found:
        """Ask now. Where there is nothing new, leave the question with the broker for the triggers that follow."""
        self._asked = None
        found = self._found = describe(self._broker(), self._names, self._pattern, known, wait)
        if known is not None and not _news(found, known) and found.keys() >= set(self._names or ()):
            after, incarnations = _told(known)
            watch = self._broker().watch(
                self._names, self._pattern, after=after, incarnations=incarnations, wait=NEWS_WAIT_S
            )
            self._asked = (dict(known), watch)
        return found


def _news(found: Found, known: Known) -> bool:
    """Whether one has more contents, is new, or was made again. Where one is gone, the broker answers at once."""
    return any(
        name not in known or one.next > known[name].next or one.incarnation != known[name].incarnation
        for name, one in found.items()
    )


def _told(known: Known) -> tuple[dict[str, int], dict[str, str]]:
    """What is known, as the broker is told it: `after` and `incarnations` of Resource.Describe."""
    after = {name: one.next for name, one in known.items()}
    return after, {name: one.incarnation for name, one in known.items()}


def describe(
    broker: Connection,
    names: Sequence[str] | None,
    pattern: str | None = None,
    known: Known | None = None,
    wait: float = 0.0,
    *,
    history: bool = False,
) -> Found:
    """Those of `names` that exist, or those that match `pattern`; waits as `News.look` does. With `history` they have
    the epochs of their logs.

    While the broker cannot open the log of one nobody knows where it ends: then it is asked again, within the
    connection's `retry_deadline`, and that is `Refused` 503 `storage` in the end.
    """
    give_up = time.monotonic() + broker.settings.retry_deadline
    while True:
        found = _described(broker, names, pattern, known, wait, history=history)
        unknown = next(_unknown(found), None)
        if unknown is None:
            return found
        if time.monotonic() >= give_up:
            raise Refused(503, STORAGE, unknown)
        time.sleep(STOPPED_RETRY_S)


def _unknown(found: Found) -> Iterator[str]:
    """What is wrong with those whose end nobody knows."""
    return (f"{one.resource!r} is stopped: {one.trouble}" for one in found.values() if one.known_next is None)


def _described(
    broker: Connection,
    names: Sequence[str] | None,
    pattern: str | None,
    known: Known | None,
    wait: float,
    *,
    history: bool,
) -> Found:
    after, incarnations = (None, None) if known is None else _told(known)
    try:
        return broker.describe(
            names, pattern, after=after, incarnations=incarnations, wait=wait, history=history
        )
    except Refused as refused:
        if names is None or refused.reason != UNKNOWN_RESOURCE:
            raise
    # A pattern finds what is there and waits for what is not.
    pattern = "|".join(map(re.escape, names))
    return broker.describe(
        pattern=pattern, after=after, incarnations=incarnations, wait=wait, history=history
    )
