"""Work of several steps: a coroutine that the core runs without an event loop, so that a simulator can repeat it.

    async def open(self, key: CursorKey) -> CursorRecord:
        await self._outbox.save((record,))  # the rest runs when the record is durable
        return record

A step ends at once or with a later input of the core, such as a result of the disk. Its value is that of `await`; its
error, a `Refused` or a `StorageError`, is raised there. So a request has one channel for errors. Any other exception
is a programming error: it is raised to the input that made the work continue, and ends the broker.

The order is that of plain calls. Work runs within the call that begins it up to its first step that has not ended, and
continues within the call that ends this step. Those that wait for the same step continue in the order in which they
began to wait.

Work that has not ended when the broker stops is dropped. Nothing of it runs then, because work has no `finally`, and no
handler of `GeneratorExit`, around a step (`tests/test_architecture.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator, Iterable
from contextlib import suppress
from functools import partial
from typing import Any, Generic, TypeVar

from mtl.errors import Refused, StorageError

T = TypeVar("T")

Error = Refused | StorageError


class Outcome(Generic[T]):
    """The outcome of a step, which may be known later: a value or an error. Any number of works may await it. An error
    that nothing awaits is ignored.
    """

    __slots__ = ("_value", "_waiting", "error", "is_known")

    def __init__(self) -> None:
        self.is_known = False
        self.error: Error | None = None
        self._value: T
        self._waiting: list[Callable[[], None]] = []

    @property
    def value(self) -> T:
        """The value of a known outcome. Raises its error."""
        if self.error is not None:
            raise self.error.with_traceback(None)  # several works may raise it: each has its own traceback
        return self._value

    def set(self, value: T) -> None:
        """The step has ended with a value."""
        self._value = value
        self._end()

    def fail(self, error: Error) -> None:
        """The step has ended with an error."""
        self.error = error
        self._end()

    def follow(self, other: Outcome[T]) -> None:
        """The step has ended like another one."""
        if other.error is not None:
            self.fail(other.error)
        else:
            self.set(other.value)

    def _end(self) -> None:
        assert not self.is_known, "a step ends once"
        self.is_known = True
        waiting, self._waiting = self._waiting, []
        for resume in waiting:
            resume()

    def when_known(self, resume: Callable[[], None]) -> None:
        """Call `resume` once, now or when the outcome is known."""
        if self.is_known:
            resume()
        else:
            self._waiting.append(resume)

    def __await__(self) -> Generator[Outcome[Any], None, T]:
        if not self.is_known:
            yield self
        return self.value


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run work up to its first unfinished step, and the rest when that has ended. It handles its errors itself."""
    try:
        awaited = work.send(None)
    except StopIteration:
        return
    awaited.when_known(partial(run, work))


def begin(work: Coroutine[Any, Any, T]) -> Outcome[T]:
    """Run work at once, as `run`; the outcome is its value, or the error that it raises."""
    outcome: Outcome[T] = Outcome()
    _continue(work, outcome)
    return outcome


def _continue(work: Coroutine[Any, Any, T], outcome: Outcome[T]) -> None:
    failed: Error | None = None
    value: Any = None
    try:
        awaited = work.send(None)
    except StopIteration as ended:
        value = ended.value
    except (Refused, StorageError) as error:
        failed = error.with_traceback(None)  # its frames would keep it alive
    else:
        awaited.when_known(partial(_continue, work, outcome))
        return
    if failed is None:
        outcome.set(value)
    else:
        outcome.fail(failed)


def either(*outcomes: Outcome[Any]) -> Outcome[None]:
    """A step that ends with the first of these, whether that fails or not."""
    ended: Outcome[None] = Outcome()
    for outcome in outcomes:
        outcome.when_known(lambda: None if ended.is_known else ended.set(None))
    return ended


async def gather(works: Iterable[Coroutine[Any, Any, T] | Outcome[T]]) -> list[T]:
    """Run works at the same time, and return their values in the same order. If some fail, the first error in this
    order is raised when all works have ended: none of them changes anything later.
    """
    outcomes = [work if isinstance(work, Outcome) else begin(work) for work in works]
    for outcome in outcomes:
        if not outcome.is_known:
            with suppress(Refused, StorageError):
                await outcome
    return [outcome.value for outcome in outcomes]
