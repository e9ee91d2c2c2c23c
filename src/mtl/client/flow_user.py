"""The interface of a flow to the reader, consumer or writer that uses it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mtl.errors import MtlError, Refused
from mtl.wire import commands, control
from mtl.wire.fields import Buffer


class User(Protocol):
    """The loop's part of a reader, consumer or writer: the callbacks of a flow."""

    def lease_request(self) -> control.ConnectionReader | control.ConnectionWriter:
        """The request for a lease."""

    def granted(self, lease: control.DataLease) -> None:
        """A lease was granted. Raises an error if it is useless."""

    def refused(self, error: Refused) -> Refused | None:
        """The lease request was refused. Returns the final error, or None to repeat the request at once."""

    def bound(self) -> None:
        """Commands may be sent from now on."""

    def command(self, command: commands.Content | commands.Confirm | commands.Reject) -> None:
        """A command arrived."""

    def answered(self, request: commands.Summon | commands.Dismiss, ok: bool) -> None:
        """The Response to a Summon or Dismiss arrived."""

    def contents(self, like: commands.Content, first: int, bodies: Sequence[Buffer]) -> int:
        """Contents from `first` on arrived that differ from `like` only in number and body. Returns the number of
        contents that were accepted together. The others (all, if it is 0) are passed to `command`.
        """

    def drained(self) -> None:
        """All messages that have arrived are handled."""

    def writable(self) -> None:
        """There is room again after a send without room."""

    def proven(self) -> None:
        """The flow is not doubtful any more: the broker has kept it."""

    def down(self) -> None:
        """The connection is lost; the flow makes a new one."""

    def failed(self, error: MtlError) -> None:
        """The flow has ended with this error."""
