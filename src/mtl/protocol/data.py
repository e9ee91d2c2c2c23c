"""One data flow at either end: which commands are allowed, and which command a Response answers. Sans IO.

A session holds no leases, windows or contents; it follows the tables of `states`. `sending` and `received` take one
command each.
"""

from __future__ import annotations

from dataclasses import dataclass

from mtl.errors import LocalError
from mtl.protocol import states
from mtl.protocol.states import CANNOT, FORBIDDEN, End, FlowState, ResourceState
from mtl.wire import commands

Asked = commands.Lease | commands.Summon | commands.Dismiss
"""The commands that get a Response."""


class OutOfTurn(LocalError):
    """A command without a row in the tables. `response` refuses a Summon or Dismiss with `code`. It is None for other
    commands, which are dropped.
    """

    def __init__(self, command: commands.Command, state: object, code: int) -> None:
        super().__init__(f"{type(command).__name__} is not allowed in state {state}")
        self.response = (
            commands.Response(command.sequence, code)
            if isinstance(command, commands.Summon | commands.Dismiss)
            else None
        )


@dataclass(frozen=True, slots=True)
class Answered:
    """A Response arrived (or was sent): the command it answers and its code."""

    request: Asked
    code: int

    @property
    def ok(self) -> bool:
        """Whether the command was accepted."""
        return self.code == states.OK


class DataSession:
    """The state of one data flow at `role`'s end (RFC 11 "Data Flow").

    Raises `OutOfTurn` for a step that the tables do not have: from `sending` it is a mistake of the caller; from
    `received` its `response` is the answer to the peer.
    """

    __slots__ = ("_resources", "_unanswered", "role", "state")

    def __init__(self, role: End) -> None:
        self.role = role
        self.state = FlowState.UNBOUND
        self._resources: dict[str, ResourceState] = {}
        self._unanswered: dict[int, Asked] = {}

    def sending(self, command: commands.Command) -> Answered | None:
        """Our side is about to send `command`."""
        return self._step(self.role, command)

    def received(self, command: commands.Command) -> Answered | None:
        """The peer's `command` arrived. For a Response: the command that it answers, and its code."""
        return self._step(self.role.other, command)

    def resource(self, name: str) -> ResourceState:
        """The state of the resource `name` on this flow."""
        return self._resources.get(name, ResourceState.DISMISSED)

    @property
    def summoned(self) -> list[str]:
        """The names of the summoned resources, in the order they were summoned."""
        return [n for n, s in self._resources.items() if s is ResourceState.SUMMONED]

    @property
    def bound(self) -> bool:
        """Whether a Lease was accepted on this flow."""
        return self.state is FlowState.BOUND

    def released(self) -> None:
        """The reading lease ended: no resource is summoned any more, and another lease may summon the same names."""
        self._resources.clear()

    def _step(self, sender: End, command: commands.Command) -> Answered | None:
        kind = type(command)
        after = states.FLOW[self.state].get((sender, kind))
        if after is None:
            raise OutOfTurn(command, self.state, FORBIDDEN)
        if kind is commands.Content:
            self._content(sender, command)  # type: ignore[arg-type]
        elif isinstance(command, commands.Response):
            return self._response(command)
        elif isinstance(command, commands.Lease | commands.Summon | commands.Dismiss):
            self._note_request(sender, command)
        self.state = after
        return None

    def _content(self, sender: End, content: commands.Content) -> None:
        # A Content to the broker depends on the lease, a Content to the client on the Summon (MTL-81, MTL-82). An empty
        # name stands for the one resource of the lease.
        if sender is End.BROKER and content.resource:
            at = self._resources.get(content.resource, ResourceState.DISMISSED)
            if (End.BROKER, commands.Content) not in states.RESOURCE[at]:
                raise OutOfTurn(content, at, CANNOT)

    def _note_request(self, sender: End, command: Asked) -> None:
        if command.sequence in self._unanswered:
            raise OutOfTurn(command, "awaiting a Response to the same command sequence", CANNOT)
        if not isinstance(command, commands.Lease):
            at = self.resource(command.resource)
            after = states.RESOURCE[at].get((sender, type(command)))
            if after is None:
                raise OutOfTurn(command, at, CANNOT)
            self._resources[command.resource] = after
        self._unanswered[command.sequence] = command

    def _response(self, response: commands.Response) -> Answered | None:
        request = self._unanswered.pop(response.sequence, None)
        if request is None:
            return None  # no command of this session: the refusal of an out-of-turn command, or a stray
        if isinstance(request, commands.Lease):
            self.state = states.LEASED.get(self.state, {}).get(response.code, self.state)
        else:
            at = self.resource(request.resource)
            after = states.RESOURCE[at].get((End.BROKER, commands.Response, response.code), at)
            if after is ResourceState.DISMISSED:
                self._resources.pop(request.resource, None)
            else:
                self._resources[request.resource] = after
        return Answered(request, response.code)
