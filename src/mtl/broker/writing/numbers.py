"""The publishing numbers of the writers of one log."""

from __future__ import annotations

from collections.abc import Mapping

WriterKey = int | str
"""The numbering writer: a named writer's id, `STAGE_WRITER` in a staged log, or an unnamed lease's token."""


class WriterNumbers:
    """The only owner of these numbers in the core: for each writer its highest durable number and its highest
    accepted number. 0: none. The engine keeps the durable ones in the log.

    The next expected number of a lease is a different value: it belongs to the flow and counts over several logs.
    """

    __slots__ = ("_accepted", "_durable")

    def __init__(self, durable: Mapping[int, int]) -> None:
        self._durable: dict[WriterKey, int] = dict(durable.items())
        self._accepted = self._durable.copy()

    def durable(self, writer: WriterKey) -> int:
        """The highest durable number of a writer."""
        return self._durable.get(writer, 0)

    def accepted(self, writer: WriterKey) -> int:
        """The highest accepted number of a writer: a lower one is a duplicate."""
        return self._accepted.get(writer, 0)

    def has_writer(self, writer: WriterKey) -> bool:
        """Whether the writer has contents here, or had some before they were dropped."""
        return writer in self._accepted

    def accept(self, writer: WriterKey, last: int) -> None:
        """Contents up to this number were accepted."""
        self._accepted[writer] = last

    def set_durable(self, writer: WriterKey, last: int) -> None:
        """Contents up to this number are durable. Ignored for a writer that was forgotten meanwhile."""
        if writer in self._accepted:
            self._durable[writer] = max(self.durable(writer), last)

    def drop(self, writer: WriterKey, last: int) -> None:
        """Accepted contents were dropped, except the durable ones and those up to `last`."""
        if writer in self._accepted:
            self._accepted[writer] = max(self.durable(writer), last)

    def forget(self, writer: WriterKey) -> None:
        """Forget a writer: its unnamed lease has ended, or its name has expired."""
        self._durable.pop(writer, None)
        self._accepted.pop(writer, None)

    def restore(self, durable: Mapping[int, int]) -> None:
        """The log has been opened, with these numbers."""
        self._durable |= durable.items()
        self._accepted |= durable.items()
