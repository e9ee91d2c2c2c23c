"""Supports both `async with c.reader(...) as r` and `r = await c.reader(...)` with an explicit close."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar


class Closable(Protocol):
    """A connection, reader or writer."""

    async def leave(self, *, failed: bool) -> None:
        """Close; if the block that used it `failed`, without a wait for unfinished work."""


T = TypeVar("T", bound=Closable)


class Opening(Generic[T]):
    """Opens when it is awaited or entered; closes at the end of the block, also after an error."""

    __slots__ = ("_open", "_opened")

    def __init__(self, opening: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._open = opening
        self._opened: T | None = None

    def __await__(self) -> Generator[Any, None, T]:
        return self._open().__await__()

    async def __aenter__(self) -> T:
        self._opened = await self._open()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._opened is not None
        await self._opened.leave(failed=kind is not None)
