"""Requests with the interpretation of their outcomes, and methods that send them: one definition for both clients.

A method of a connection that is decorated with `asks` returns a `ClientRequest[T]`. The blocking client sends it and
returns the `T`; in the asyncio client the `T` is awaited.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

import msgspec

from mtl.client.arguments import checked
from mtl.errors import Malformed, Refused
from mtl.wire import control

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R", bound=control.Reply)
L = TypeVar("L", bound=control.Listed)


@dataclass(frozen=True, slots=True)
class ClientRequest(Generic[T]):
    """A request, or None for the broker's 201 alone. `conclude` turns the outcome and the number of attempts into
    the answer, another request, or an error. It needs the number because the broker may have executed an earlier
    attempt. The broker may hold the request on purpose for `patience` seconds.
    """

    request: control.Request | None
    conclude: Callable[[control.Reply | Refused, int], T | ClientRequest[T]]
    patience: float = 0.0


def interpreted(
    request: control.Request | None, reply: type[R], use: Callable[[R], T], *, patience: float = 0.0
) -> ClientRequest[T]:
    """A request whose answer is computed from its `reply`."""
    return ClientRequest(request, lambda outcome, _: use(expected(outcome, reply)), patience)


def replied(request: control.Request, reply: type[R]) -> ClientRequest[R]:
    """A request whose answer is its `reply`."""
    return interpreted(request, reply, lambda answer: answer)


def listed(
    requests: Sequence[control.Request], reply: type[L], use: Callable[[list[L]], T], *, patience: float = 0.0
) -> ClientRequest[T]:
    """Requests for parts of a list, whose answer is computed from all pages of all parts (PROTOCOL.md 2.4)."""

    def asked(left: Sequence[control.Request], before: list[L]) -> ClientRequest[T]:
        def conclude(outcome: control.Reply | Refused, _attempts: int) -> T | ClientRequest[T]:
            pages = [*before, expected(outcome, reply)]
            following = pages[-1].continue_
            if following is not None:
                return asked([msgspec.structs.replace(left[0], continue_=following), *left[1:]], pages)
            return asked(left[1:], pages) if left[1:] else use(pages)

        return ClientRequest(left[0], conclude, patience)

    return asked(requests, [])


def removed(request: control.Request, gone: str) -> ClientRequest[None]:
    """A request to remove something. If it was repeated, the refusal `gone` means that an earlier attempt was
    executed.
    """

    def conclude(outcome: control.Reply | Refused, attempts: int) -> None:
        if isinstance(outcome, Refused) and not (attempts > 1 and outcome.reason == gone):
            raise outcome

    return ClientRequest(request, conclude)


def expected(answer: control.Reply | Refused, reply: type[R]) -> R:
    """The reply, if it is of this type. Raises the refusal, or `Malformed`."""
    if isinstance(answer, Refused):
        raise answer
    if not isinstance(answer, reply):
        raise Malformed(f"a request for {reply.__name__} was answered with {type(answer).__name__}")
    return answer


# --- methods that ask ---------------------------------------------------------------------------------------


class Blocking(ABC):
    """A connection whose methods return answers."""

    @abstractmethod
    def _answer(self, request: ClientRequest[T]) -> T:
        """Send the request, and wait."""


class Awaiting(ABC):
    """A connection whose methods return awaitables of answers."""

    @abstractmethod
    def _answer(self, request: ClientRequest[T]) -> Awaitable[T]:
        """Send the request."""


class _Asking(Protocol[P, T_co]):
    @overload
    def __get__(self, asker: Blocking, kind: object = None) -> Callable[P, T_co]: ...
    @overload
    def __get__(self, asker: Awaiting, kind: object = None) -> Callable[P, Awaitable[T_co]]: ...
    @overload
    def __get__(self, asker: None, kind: object = None) -> Callable[Concatenate[Any, P], Any]: ...


def asks(method: Callable[Concatenate[Any, P], ClientRequest[T]]) -> _Asking[P, T]:
    """The method that sends the request, for connections of both kinds. Its signature has the answer's type, which
    `help` then shows.
    """
    ask, described = checked(method), signature(method)

    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return self._answer(ask(self, *args, **kwargs))

    answer = str(described.return_annotation).removeprefix("ClientRequest[").removesuffix("]")
    call.__signature__ = described.replace(return_annotation=answer)  # type: ignore[attr-defined]
    return cast("_Asking[P, T]", call)
