"""The changes of resources, in order, for clients that have an earlier state of them (PROTOCOL.md 5.1)."""

from __future__ import annotations

from collections import OrderedDict

from mtl.broker.limits import MAX_CHANGES
from mtl.broker.writing.resource import Resource


class Changes:
    """The last change of every resource since the start of the broker: it was created or deleted, got contents, or its
    log was opened. `boot` distinguishes the starts.
    """

    def __init__(self, boot: str) -> None:
        self._boot = boot
        self._last = 0
        self._forgotten = 0
        """The newest change that is not kept any more."""
        self._of: dict[str, OrderedDict[str, int]] = {}
        """By virtual host: the number of each resource's last change, in the order of the changes."""
        self._kept = 0

    def note(self, resource: Resource) -> None:
        """A resource has changed."""
        self._last += 1
        changes = self._of.setdefault(resource.record.vhost, OrderedDict())
        self._kept += resource.name not in changes
        changes[resource.name] = self._last
        changes.move_to_end(resource.name)
        if self._kept > MAX_CHANGES:
            _, self._forgotten = changes.popitem(last=False)
            self._kept -= 1

    def state(self, number: int | None = None) -> str:
        """The present state of all resources, or that after the change `number`."""
        return f"{self._boot}.{self._last if number is None else number}"

    def since(self, vhost: str, state: str) -> dict[str, int] | None:
        """The resources of a virtual host that have changed since a state, the earliest change first, with the numbers
        of their last changes. None if this is not known: the state is of another start, or too old.
        """
        boot, _, digits = state.rpartition(".")
        number = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 20 else -1
        if boot != self._boot or not self._forgotten <= number <= self._last:
            return None
        changed = []
        for name, last in reversed(self._of.get(vhost, OrderedDict()).items()):
            if last <= number:
                break
            changed.append((name, last))
        return dict(reversed(changed))
