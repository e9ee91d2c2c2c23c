"""The state of a query's resources, requested from the broker once for many triggers.

The first trigger without a change leaves a watch request with the broker, so that the next triggers need no
request. The broker answers it when there is a change (a resource has more contents, is new, was deleted or created
again), or when its time is up. Until then, and while its connection is up, the last state is still valid, except
for contents that retention removed; the planning of a batch requests the state again. The watch request contains
the state that the query knows, so the broker answers at once if this state is out of date. While a named resource
does not exist, every trigger sends a request.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mtl.errors import Refused
from mtl.wire.control import STORAGE, UNKNOWN_RESOURCE, Description
from pyspark_mtl.limits import STOPPED_RETRY_S, WATCH_WAIT_S
from pyspark_mtl.source.offsets import Position

if TYPE_CHECKING:
    from mtl.client.connection import Connection, Watch

Found = dict[str, Description]

Known = Mapping[str, Position]
"""The resources that a query knows: their incarnation, and the sequence from which on contents are new."""


class ResourceWatch:
    """Finds changes of the resources `names`, or of those that match `pattern`. `broker` is called for each request."""

    def __init__(
        self, broker: Callable[[], Connection], names: Sequence[str] | None, pattern: str | None
    ) -> None:
        self._broker = broker
        self._names = names
        self._pattern = pattern
        self._found: Found = {}
        self._watch: tuple[dict[str, Position], Watch] | None = None

    def find(self, known: Known | None, wait: float) -> Found:
        """The resources that exist. With `known` it waits, up to `wait` seconds, until a resource has contents
        above the known `next`, an unknown resource exists, or a known one is deleted or has another incarnation.
        Without a change it leaves a watch request with the broker.
        """
        watched = self._watch
        if known is None or watched is None or watched[0] != known:
            return self._request(known, wait)
        try:
            changed = watched[1].news(wait)
        except Refused as refused:
            if refused.reason != UNKNOWN_RESOURCE:
                raise
            return self._request(known, wait)
        if changed is not None and next(_unknown(changed), None) is not None:
            return self._request(known, wait)
        if changed is not None:
            self._found, self._watch = changed, None
        elif not watched[1].stands:  # the broker may have restarted, and have other resources
            return self._request(known, wait)
        return self._found

    def is_silent(self, wait: float) -> bool:
        """Whether the watch request of `find` is still valid and gets no answer within `wait` seconds, so that `find`
        would find no change.
        """
        return self._watch is not None and self._watch[1].is_silent(wait)

    def _request(self, known: Known | None, wait: float) -> Found:
        """Request the state now. Without a change, leave a watch request with the broker for the next triggers."""
        self._watch = None
        found = self._found = describe(self._broker(), self._names, self._pattern, known, wait)
        if known is not None and not _has_changes(found, known) and found.keys() >= set(self._names or ()):
            after, incarnations = _watch_parameters(known)
            watch = self._broker().watch(
                self._names, self._pattern, after=after, incarnations=incarnations, wait=WATCH_WAIT_S
            )
            self._watch = (dict(known), watch)
        return found


def _has_changes(found: Found, known: Known) -> bool:
    """Whether a resource has more contents, is new, or was created again. The broker answers at once if one was
    deleted.
    """
    return any(
        name not in known
        or description.next > known[name].next
        or description.incarnation != known[name].incarnation
        for name, description in found.items()
    )


def _watch_parameters(known: Known) -> tuple[dict[str, int], dict[str, str]]:
    """The known state as parameters `after` and `incarnations` of Resource.Describe."""
    after = {name: description.next for name, description in known.items()}
    return after, {name: description.incarnation for name, description in known.items()}


def describe(
    broker: Connection,
    names: Sequence[str] | None,
    pattern: str | None = None,
    known: Known | None = None,
    wait: float = 0.0,
    *,
    history: bool = False,
) -> Found:
    """The resources of `names` that exist, or those that match `pattern`; waits as `ResourceWatch.find` does. With
    `history` they have the epochs of their logs.

    While the broker cannot open the log of a resource, the end of the log is unknown and the request is repeated.
    After the connection's `retry_deadline` this raises `Refused` 503 `storage`.
    """
    give_up = time.monotonic() + broker.settings.retry_deadline
    while True:
        found = _describe_once(broker, names, pattern, known, wait, history=history)
        unknown = next(_unknown(found), None)
        if unknown is None:
            return found
        if time.monotonic() >= give_up:
            raise Refused(503, STORAGE, unknown)
        time.sleep(STOPPED_RETRY_S)


def _unknown(found: Found) -> Iterator[str]:
    """An error text for each resource whose end is unknown."""
    return (
        f"{description.resource!r} is stopped: {description.trouble}"
        for description in found.values()
        if description.known_next is None
    )


def _describe_once(
    broker: Connection,
    names: Sequence[str] | None,
    pattern: str | None,
    known: Known | None,
    wait: float,
    *,
    history: bool,
) -> Found:
    after, incarnations = (None, None) if known is None else _watch_parameters(known)
    try:
        return broker.describe(
            names, pattern, after=after, incarnations=incarnations, wait=wait, history=history
        )
    except Refused as refused:
        if names is None or refused.reason != UNKNOWN_RESOURCE:
            raise
    # A pattern returns the resources that exist, and waits for the others.
    pattern = "|".join(map(re.escape, names))
    return broker.describe(
        pattern=pattern, after=after, incarnations=incarnations, wait=wait, history=history
    )
