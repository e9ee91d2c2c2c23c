"""The state of a query's resources, requested from the broker once for many triggers.

The first trigger without a change leaves a watch request with the broker, so that the next triggers need no
request. The broker answers it when there is a change (a resource has more contents, is new, was deleted or created
again), or when its time is up. Until then, and while its connection is up, the last state is still valid, except
for contents that retention removed; the planning of a batch requests the state again. The watch request contains
the state of the last answer, so the broker answers at once if it is out of date, and the answer has only the resources
that have changed: its cost does not grow with the number of resources.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mtl.errors import Refused
from mtl.wire.control import STORAGE, Description
from pyspark_mtl.limits import STOPPED_RETRY_S, WATCH_WAIT_S
from pyspark_mtl.source.offsets import Position

if TYPE_CHECKING:
    from mtl.client.connection import Connection, Watch
    from mtl.client.resources import Described

Descriptions = dict[str, Description]

Known = Mapping[str, Position]
"""The resources that a query knows: their incarnation, and the sequence from which on contents are new."""


class ResourceWatch:
    """Finds changes of the resources `names`, or of those that match `pattern`, except the one that is named
    `excluded`. `broker` is called for each request.
    """

    def __init__(
        self,
        broker: Callable[[], Connection],
        names: Sequence[str] | None,
        pattern: str | None,
        excluded: str | None = None,
    ) -> None:
        self._broker = broker
        self._names = names
        self._pattern = pattern
        self._excluded = excluded
        self._descriptions: Descriptions = {}
        self._state: str | None = None
        self._watch: Watch | None = None

    def find(self, known: Known | None = None, wait: float = 0.0) -> Descriptions:
        """The resources that exist. With `known` it waits, up to `wait` seconds, until a resource has contents
        above the known `next`, an unknown resource exists, or a known one is deleted or has another incarnation.
        Without a change it leaves a watch request with the broker.
        """
        if known is None or self._state is None:
            self._request()
        else:
            self._update(0.0)
        if known is not None and not self._has_changes(known):
            if self._watch is None:
                self._watch = self._broker().watch(
                    self._names, self._pattern, since=self._state or "", wait=WATCH_WAIT_S
                )
            self._update(wait)
        return self._wanted()

    def is_silent(self, wait: float) -> bool:
        """Whether the watch request of `find` is still valid and gets no answer within `wait` seconds, so that `find`
        would find no change.
        """
        return self._watch is not None and self._watch.is_silent(wait)

    def _update(self, wait: float) -> None:
        """Add the changes since the last answer: those that a watch request reports within `wait` seconds, or, without
        a valid one (the broker may have restarted), all of them.
        """
        news = None
        if self._watch is not None:
            news = self._watch.news(wait)
            if news is None and self._watch.stands:
                return
            self._watch = None
        if news is None:
            news = self._broker().describe(self._names, self._pattern, missing_ok=True, since=self._state)
        if news.removed is None or next(_unknown(news), None) is not None:
            self._request()
            return
        gone = set(news.removed)
        self._descriptions = {
            name: description for name, description in self._descriptions.items() if name not in gone
        } | news
        self._state = news.state

    def _request(self) -> None:
        """Request the state of all resources."""
        self._watch = None
        resources = describe(self._broker(), self._names, self._pattern)
        self._descriptions, self._state = resources, resources.state

    def _has_changes(self, known: Known) -> bool:
        """Whether a resource has more contents, is new, was created again, or was deleted."""
        wanted = self._wanted()
        return any(name not in wanted for name in known if name != self._excluded) or any(
            name not in known
            or description.next > known[name].next
            or description.incarnation != known[name].incarnation
            for name, description in wanted.items()
        )

    def _wanted(self) -> Descriptions:
        if self._excluded not in self._descriptions:
            return self._descriptions
        return {
            name: description for name, description in self._descriptions.items() if name != self._excluded
        }


def describe(
    broker: Connection, names: Sequence[str] | None, pattern: str | None = None, *, history: bool = False
) -> Described:
    """The resources of `names` that exist, or those that match `pattern`. With `history` they have the epochs of their
    logs.

    While the broker cannot open the log of a resource, the end of the log is unknown and the request is repeated.
    After the connection's `retry_deadline` this raises `Refused` 503 `storage`.
    """
    give_up = time.monotonic() + broker.settings.retry_deadline
    while True:
        resources = broker.describe(names, pattern, missing_ok=True, history=history)
        unknown = next(_unknown(resources), None)
        if unknown is None:
            return resources
        if time.monotonic() >= give_up:
            raise Refused(503, STORAGE, unknown)
        time.sleep(STOPPED_RETRY_S)


def _unknown(resources: Descriptions) -> Iterator[str]:
    """An error text for each resource whose end is unknown."""
    return (
        f"{description.resource!r} is stopped: {description.trouble}"
        for description in resources.values()
        if description.known_next is None
    )
