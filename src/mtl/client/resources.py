"""The administrative methods of a connection: resources, groups, queues, stages. One method per command."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar

from mtl.client.control import Call, Waiter
from mtl.errors import Malformed, Refused
from mtl.wire import control as w

R = TypeVar("R", bound=w.Reply)


def listed(names: str | Iterable[str]) -> list[str]:
    """One name or several as a list; a string is one name."""
    return [names] if isinstance(names, str) else list(names)


class Watch:
    """A pending request for news of resources: the broker answers when there is news, or after its `wait`."""

    def __init__(self, call: Call, waiter: Waiter) -> None:
        self._call = call
        self._waiter = waiter

    @property
    def stands(self) -> bool:
        """Whether the request was sent and its connection is still up: only then no answer means no news."""
        return self._call.stands

    def is_silent(self, seconds: float) -> bool:
        """Whether there is no answer within `seconds` and the request still stands: then there is no news."""
        return self._waiter.is_waiting(seconds) and self.stands

    def news(self, seconds: float) -> dict[str, w.Description] | None:
        """The answer (as from `describe`) if it comes within `seconds`; None if the request is still pending."""
        reply = self._waiter.within(seconds)
        return None if reply is None else _by_name(_expected(reply, w.Resources))


class Administration(ABC):
    """The methods of `Connection` that are one request each. Times in µs are since 1970, UTC."""

    @abstractmethod
    def request(self, request: w.Request, *, patience: float = 0.0) -> w.Reply:
        """Send any request and return its reply; the broker may hold it on purpose for `patience` seconds."""

    @abstractmethod
    def ask(self, request: w.Request, *, patience: float) -> tuple[Call, Waiter]:
        """Send a request that the broker may hold for `patience` seconds; the caller waits for the reply."""

    @abstractmethod
    def _attempted(self, request: w.Request) -> tuple[w.Reply | Refused, int]:
        """The outcome of a request, and the number of attempts; an earlier attempt may have been executed."""

    def _ask(self, request: w.Request, reply: type[R], *, patience: float = 0.0) -> R:
        return _expected(self.request(request, patience=patience), reply)

    # --- resources ------------------------------------------------------------------------------------------

    def create_resource(
        self,
        name: str,
        *,
        durability: w.Durability = "sync",
        retention: w.Retention | None = None,
        exist_ok: bool = False,
        dead_letter: str | None = None,
        max_deliveries: int | None = None,
    ) -> w.Description:
        """Create a resource. `Refused` 409 "exists" if it exists, unless `exist_ok`.

        Contents that its queues delivered `max_deliveries` times (default 10), or that a consumer rejected, go to
        `dead_letter` (default: the resource's name followed by ".dead").
        """
        request = w.ResourceCreate(
            resource=name,
            durability=durability,
            retention=retention,
            exist_ok=exist_ok,
            dead_letter=dead_letter,
            max_deliveries=max_deliveries,
        )
        outcome, attempts = self._attempted(request)
        if isinstance(outcome, w.ResourceCreated):
            return outcome.resource
        if attempts > 1 and isinstance(outcome, Refused) and outcome.reason == w.EXISTS:
            return self.describe([name])[name]  # created by an attempt whose reply was lost
        raise outcome if isinstance(outcome, Refused) else Malformed("Resource.Create was not answered")

    def delete_resource(self, name: str, *, incarnation: str | None = None) -> None:
        """Delete a resource with its contents, cursors and leases."""
        outcome, attempts = self._attempted(w.ResourceDelete(resource=name, incarnation=incarnation))
        if isinstance(outcome, Refused) and not (attempts > 1 and outcome.reason == w.UNKNOWN_RESOURCE):
            raise outcome

    def describe(
        self,
        names: str | Iterable[str] | None = None,
        pattern: str | None = None,
        *,
        after: Mapping[str, int] | None = None,
        incarnations: Mapping[str, str] | None = None,
        wait: float = 0.0,
        history: bool = False,
    ) -> dict[str, w.Description]:
        """Resources by name: those named (`Refused` 404 if one is missing), those that match, or all.

        With `after` it waits, up to `wait` seconds, until one of these is true: a resource's `next` is above the one in
        `after`, a resource exists that is not in `after`, a resource in `after` does not exist, or the incarnation of
        one differs from `incarnations`. With `history` the descriptions have all epochs of the logs.
        """
        request = _describe(names, pattern, after, incarnations, wait, history=history)
        return _by_name(self._ask(request, w.Resources, patience=wait))

    def watch(
        self,
        names: str | Iterable[str] | None = None,
        pattern: str | None = None,
        *,
        after: Mapping[str, int],
        incarnations: Mapping[str, str] | None = None,
        wait: float,
    ) -> Watch:
        """Send the request of `describe` without waiting; `Watch.news` gets the answer."""
        return Watch(*self.ask(_describe(names, pattern, after, incarnations, wait), patience=wait))

    def list_resources(self, pattern: str | None = None) -> list[w.Description]:
        """All resources, or those whose whole name matches the regular expression; sorted by name."""
        return self._ask(w.ResourceList(pattern=pattern), w.Resources).resources

    def locate_time(
        self, resource: str, timestamp_us: int, *, incarnation: str | None = None
    ) -> tuple[int, bool]:
        """The sequence of the first content at or after a time and True, or the resource's end and False."""
        request = w.ResourceLocate(resource=resource, timestamp=timestamp_us, incarnation=incarnation)
        located = self._ask(request, w.Located)
        return located.sequence, located.match

    def locate_end(
        self,
        resource: str,
        start: int,
        *,
        contents: int | None = None,
        bytes: int | None = None,  # noqa: A002 it is the protocol's word
        incarnation: str | None = None,
    ) -> int:
        """The end, exclusive, of at most `contents` contents and `bytes` stored octets from `start` on: at least one
        chunk.
        """
        request = w.ResourceLocate(
            resource=resource, start=start, contents=contents, bytes=bytes, incarnation=incarnation
        )
        return self._ask(request, w.Located).sequence

    def unread(
        self, resource: str, start: int, contents: int, *, incarnation: str | None = None
    ) -> w.Located:
        """Measure at most `contents` contents from `start` on: `bytes` are their stored octets, `timestamp` is the
        append time (µs) of the oldest. `DataLoss` if `start` is gone.
        """
        request = w.ResourceLocate(resource=resource, start=start, contents=contents, incarnation=incarnation)
        return self._ask(request, w.Located)

    # --- groups ---------------------------------------------------------------------------------------------

    def cursor_open(
        self,
        group: str,
        resource: str,
        *,
        start: Literal["earliest", "latest"] | int = "earliest",
        incarnation: str | None = None,
    ) -> w.CursorOpened:
        """Create a group's durable position in a resource, or return the existing one."""
        request = w.CursorOpen(group=group, resource=resource, from_=start, incarnation=incarnation)
        return self._ask(request, w.CursorOpened)

    def cursors(self, group: str | None = None, resource: str | None = None) -> list[w.CursorInfo]:
        """The positions of groups, including all Confirms so far."""
        return self._ask(w.CursorDescribe(group=group, resource=resource), w.Cursors).cursors

    def cursor_reset(
        self,
        group: str,
        resource: str,
        to: Literal["earliest", "latest"] | int | None = None,
        *,
        timestamp_us: int | None = None,
        force: bool = False,
    ) -> w.CursorWasReset:
        """Move a group's position forward or back: `to` a place, or to the first content at or after a time.

        `Refused` 409 "in-use" while a reader holds the cursor, unless `force`, which ends the holder's leases as a
        newer holder would; 404 "unknown-cursor" if there is none. The request is idempotent.
        """
        request = w.CursorReset(group=group, resource=resource, to=to, timestamp=timestamp_us, force=force)
        return self._ask(request, w.CursorWasReset)

    def cursor_delete(self, group: str, resource: str) -> None:
        """Delete a group's position."""
        outcome, attempts = self._attempted(w.CursorDelete(group=group, resource=resource))
        if isinstance(outcome, Refused) and not (attempts > 1 and outcome.reason == w.UNKNOWN_CURSOR):
            raise outcome

    # --- queues ---------------------------------------------------------------------------------------------

    def queues(self, queue: str | None = None, resource: str | None = None) -> list[w.QueueInfo]:
        """The counts of ready, delivered, delayed and dead contents in queues: of a name, a resource, both, or all."""
        return self._ask(w.QueueDescribe(group=queue, resource=resource), w.Queues).queues

    def queue_delete(self, queue: str, resource: str) -> None:
        """Delete a queue's record of settled contents. `Refused` 409 "in-use" while it has consumers."""
        outcome, attempts = self._attempted(w.QueueDelete(group=queue, resource=resource))
        if isinstance(outcome, Refused) and not (attempts > 1 and outcome.reason == w.UNKNOWN_QUEUE):
            raise outcome

    # --- stages ---------------------------------------------------------------------------------------------

    def stage_commit(
        self,
        application: str,
        version: int,
        stages: str | Iterable[str],
        query: str | None = None,
        *,
        truncate: str | Iterable[str] = (),
    ) -> w.Committed:
        """Publish the stages' contents atomically, in this order, once per (application, version). The former contents
        of the resources in `truncate` are removed in the same step.

        Idempotent: a repetition has no effect and gets the same answer, with `already`. `Refused` 409 "rolled-back" if
        the application has committed a later version, 404 "unknown-stage" if a stage is gone.
        """
        request = w.StageCommit(
            application=application,
            version=version,
            stages=listed(stages),
            query=query,
            truncate=listed(truncate),
        )
        return self._ask(request, w.Committed)

    def stage_abort(self, stages: str | Iterable[str]) -> None:
        """Discard stages; unknown and committed ones are left alone."""
        self.request(w.StageAbort(stages=listed(stages)))

    def stages(self, application: str | None = None) -> w.Stages:
        """The stages that are not committed, and the last committed version of each application."""
        return self._ask(w.StageDescribe(application=application), w.Stages)

    def stage_forget(self, application: str) -> None:
        """Delete the last committed version of an application, so that it may start from any version."""
        outcome, attempts = self._attempted(w.StageForget(application=application))
        if isinstance(outcome, Refused) and not (attempts > 1 and outcome.reason == w.UNKNOWN_APPLICATION):
            raise outcome


def _describe(
    names: str | Iterable[str] | None,
    pattern: str | None,
    after: Mapping[str, int] | None,
    incarnations: Mapping[str, str] | None,
    wait: float,
    *,
    history: bool = False,
) -> w.ResourceDescribe:
    return w.ResourceDescribe(
        resources=None if names is None else listed(names),
        pattern=pattern,
        after=None if after is None else dict(after),
        incarnations=None if incarnations is None else dict(incarnations),
        wait=int(wait * 1000),
        history=history,
    )


def _by_name(found: w.Resources) -> dict[str, w.Description]:
    return {one.resource: one for one in found.resources}


def _expected(got: w.Reply, reply: type[R]) -> R:
    if not isinstance(got, reply):
        raise Malformed(f"a request for {reply.__name__} was answered with {type(got).__name__}")
    return got
