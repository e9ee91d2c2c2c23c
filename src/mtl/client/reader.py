"""Reading: contents one by one, or packs of many as Arrow batches. See `Connection.reader`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from mtl.client.contents import Content, Pack
from mtl.client.lease_handle import BlockingLease
from mtl.client.loop import Loop
from mtl.client.notice import Notice
from mtl.client.reader_part import ReaderPart
from mtl.client.reading import ReadingLease
from mtl.client.settings import Settings
from mtl.errors import Unreachable


class Reader(ReadingLease, BlockingLease):
    """A lease to read one resource from a position on, in order, without gaps or duplicates.

    Iteration gives `Content`s and ends at `until`, or never; `batches` gives `Pack`s. A request for the next item marks
    the last one as consumed. Only then the broker sends more, so a slow application takes at most one window of memory.
    The holder of a group gives this credit by `confirm`, which also moves the group's cursor. The lease survives
    restarts of the broker. For one thread at a time, except `confirm`, `ping_holder` and `close`.

    Any method may raise `DataLoss` if contents are gone, `Fenced` if another holder took over, `Unreachable` if the
    broker does not answer for `retry_deadline`.
    """

    def __init__(self, loop: Loop, settings: Settings, part: ReaderPart, closed: Callable[[], None]) -> None:
        super().__init__(loop, settings, part, closed)
        self._notice = Notice()
        part.listener = self._notice.notify

    def next(self, timeout: float | None = None) -> Content | None:
        """The next content; None after `timeout` seconds without one (None: no limit), and at the end of the range."""
        while (content := self._next()) is None and self._wait(timeout):
            pass
        return content

    def some(self, contents: int, octets: int, timeout: float | None = None) -> list[Content]:
        """The next content, and others that came with it: at most `contents`, ending at `octets` octets of bodies.

        An empty list after `timeout` seconds, and at the end of the range. The next call marks them as consumed.
        """
        while not (together := self._available(contents, octets)) and self._wait(timeout):
            pass
        return together

    def __iter__(self) -> Iterator[Content]:
        """Every content up to `until`; without `until` it never ends."""
        try:
            while (content := self.next()) is not None:
                yield content
                if self._current is not None:
                    # The rest of a pack or run, which is faster than a call of `self.next` for each content.
                    for content in self._current:
                        self._position = content.sequence + 1
                        yield content
                    self._current = None
        finally:
            self._current = None  # interrupted or left: the next call begins at the position

    def batches(self, timeout: float | None = None) -> Iterator[Pack]:
        """Every pack up to `until`, cut to the range; ends early if none comes for `timeout` seconds."""
        while True:
            while (pack := self._next_pack()) is None and self._wait(timeout):
                pass
            if pack is None:
                return
            self._position = pack.first + pack.count
            yield pack

    def _wait(self, timeout: float | None) -> bool:
        """Wait for a delivery or an error: False at the end of the range, and after `timeout`. Consumed contents are
        confirmed after a while.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._is_wait_over():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            credit_due = self._credit_due_s
            patience = min((x for x in (left, credit_due) if x is not None), default=None)
            if not self._notice.wait(self._is_wait_over, patience) and credit_due is not None:
                self._post_credit()
        return not self._is_over

    def _in_loop(self, call: Callable[[], None]) -> None:
        done: list[bool] = []
        notice = Notice()

        def run() -> None:
            call()
            done.append(True)
            notice.notify()

        self._loop.post(run)
        while not notice.wait(lambda: bool(done), self._settings.request_timeout):
            self._check()

    def confirm(self, sequence: int, *, log_epoch: str | None = None) -> None:
        """Confirm every content up to `sequence`. For a holder this moves the group's cursor, never back. For a server
        of RFC 11 only, `sequence` is the server's own number of the content.

        `log_epoch` is the epoch of that content if another reader read it: after a restart of the broker no content
        is confirmed in another copy of the log.

        Returns before the broker has the Confirm. `ping_holder` waits for this and returns the group's position. A
        holder that never reads holds the resource from the last confirmed content on after a restart of the broker.
        """
        self._confirm(sequence, log_epoch)

    def ping_holder(self, timeout: float | None = None) -> int | None:
        """Wait until the broker has processed every `confirm` so far, and answers that this reader is still the holder.

        Returns the group's current position in the broker. It is behind the content confirmed here if another reader of
        the same `holder` has confirmed less. None for a reader without a group.

        Raises `Fenced` if another holder took over, `Unreachable` if there is no answer for `timeout` seconds (default:
        the connection's `retry_deadline`).
        """
        patience = self._settings.retry_deadline if timeout is None else timeout
        positions = self._ping()
        if not self._notice.wait(lambda: bool(positions) or self._part.error is not None, patience):
            raise Unreachable(self._settings.endpoint, patience, "waiting for the Pong of a holder")
        if not positions:
            assert self._part.error is not None
            raise self._part.error
        return positions[0]
