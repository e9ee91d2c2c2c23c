"""The administrative methods of both connections: resources, groups, queues, stages. One method per command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from mtl.client.questions import Question, asks, expected, question, removed, replied
from mtl.errors import Malformed, Refused
from mtl.wire import control as w


def listed(names: str | Iterable[str]) -> list[str]:
    """One name or several as a list; a string is one name."""
    return [names] if isinstance(names, str) else list(names)


class Administration:
    """The methods of a connection that are one request each: `Question[T]` stands for a `T`, which the asyncio client
    awaits. Times in µs are since 1970, UTC.
    """

    @asks
    def ready(self) -> Question[w.Ready]:
        """The broker's 201 reply, from the opening of the session."""
        return question(None, w.Ready, lambda ready: ready)

    @asks
    def own_name(self, name: str) -> Question[str]:
        """`name` as a group, queue, writer or application that needs no grant: with the user's name and a dot before
        it, if the broker says that the client has a user (PROTOCOL.md 2.2).
        """
        return question(None, w.Ready, lambda ready: own_name(ready, name))

    @asks
    def request(self, request: w.Request, *, patience: float = 0.0) -> Question[w.Reply]:
        """Send any request and return its reply. It is repeated until there is an answer or the deadline passes.

        `patience` is how long, in seconds, the broker may hold the request on purpose (a Describe with `wait`).
        """
        return Question(request, _reply, patience)

    # --- resources ------------------------------------------------------------------------------------------

    @asks
    def create_resource(
        self,
        name: str,
        *,
        durability: w.Durability = "sync",
        retention: w.Retention | None = None,
        exist_ok: bool = False,
        dead_letter: str | None = None,
        max_deliveries: int | None = None,
    ) -> Question[w.Description]:
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

        def created(outcome: w.Reply | Refused, attempts: int) -> w.Description | Question[w.Description]:
            if attempts > 1 and isinstance(outcome, Refused) and outcome.reason == w.EXISTS:
                # Created by an attempt whose reply was lost.
                describe = w.ResourceDescribe(resources=[name])
                return question(describe, w.DescriptionList, lambda reply: by_name(reply, [name])[name])
            return expected(outcome, w.ResourceCreated).resource

        return Question(request, created)

    @asks
    def delete_resource(self, name: str, *, incarnation: str | None = None) -> Question[None]:
        """Delete a resource with its contents, cursors and leases."""
        return removed(w.ResourceDelete(resource=name, incarnation=incarnation), w.UNKNOWN_RESOURCE)

    @asks
    def describe(
        self,
        names: str | Iterable[str] | None = None,
        pattern: str | None = None,
        *,
        after: Mapping[str, int] | None = None,
        incarnations: Mapping[str, str] | None = None,
        wait: float = 0.0,
        history: bool = False,
    ) -> Question[dict[str, w.Description]]:
        """Resources by name: those named (`Refused` 404 if one is missing), those that match, or all.

        With `after` it waits, up to `wait` seconds, until one of these is true: a resource's `next` is above the one in
        `after`, a resource exists that is not in `after`, a resource in `after` does not exist, or the incarnation of
        one differs from `incarnations`. With `history` the descriptions have all epochs of the logs.
        """
        request = describing(names, pattern, after, incarnations, wait, history=history)
        wanted = request.resources if after is None else None
        return question(request, w.DescriptionList, lambda reply: by_name(reply, wanted or ()), patience=wait)

    @asks
    def list_resources(self, pattern: str | None = None) -> Question[list[w.Description]]:
        """All resources, or those whose whole name matches the regular expression; sorted by name."""
        return question(w.ResourceList(pattern=pattern), w.DescriptionList, lambda reply: reply.resources)

    @asks
    def locate_time(
        self, resource: str, timestamp_us: int, *, incarnation: str | None = None
    ) -> Question[tuple[int, bool]]:
        """The sequence of the first content at or after a time and True, or the resource's end and False."""
        request = w.ResourceLocate(resource=resource, timestamp=timestamp_us, incarnation=incarnation)
        return question(request, w.Located, lambda located: (located.sequence, located.match))

    @asks
    def locate_end(
        self,
        resource: str,
        start: int,
        *,
        contents: int | None = None,
        bytes: int | None = None,  # noqa: A002 it is the protocol's word
        incarnation: str | None = None,
    ) -> Question[int]:
        """The end, exclusive, of at most `contents` contents and `bytes` stored octets from `start` on: at least one
        chunk.
        """
        request = w.ResourceLocate(
            resource=resource, start=start, contents=contents, bytes=bytes, incarnation=incarnation
        )
        return question(request, w.Located, lambda located: located.sequence)

    @asks
    def unread(
        self, resource: str, start: int, contents: int, *, incarnation: str | None = None
    ) -> Question[w.Located]:
        """Measure at most `contents` contents from `start` on: `bytes` are their stored octets, `timestamp` is the
        append time (µs) of the oldest. `DataLoss` if `start` is gone.
        """
        request = w.ResourceLocate(resource=resource, start=start, contents=contents, incarnation=incarnation)
        return replied(request, w.Located)

    # --- groups ---------------------------------------------------------------------------------------------

    @asks
    def cursor_open(
        self,
        group: str,
        resource: str,
        *,
        start: Literal["earliest", "latest"] | int = "earliest",
        incarnation: str | None = None,
    ) -> Question[w.CursorOpened]:
        """Create a group's durable position in a resource, or return the existing one."""
        request = w.CursorOpen(group=group, resource=resource, from_=start, incarnation=incarnation)
        return replied(request, w.CursorOpened)

    @asks
    def cursors(self, group: str | None = None, resource: str | None = None) -> Question[list[w.CursorInfo]]:
        """The positions of groups, including all Confirms so far."""
        request = w.CursorDescribe(group=group, resource=resource)
        return question(request, w.CursorList, lambda reply: reply.cursors)

    @asks
    def cursor_reset(
        self,
        group: str,
        resource: str,
        to: Literal["earliest", "latest"] | int | None = None,
        *,
        timestamp_us: int | None = None,
        force: bool = False,
    ) -> Question[w.CursorWasReset]:
        """Move a group's position forward or back: `to` a place, or to the first content at or after a time.

        `Refused` 409 "in-use" while a reader holds the cursor, unless `force`, which ends the holder's leases as a
        newer holder would; 404 "unknown-cursor" if there is none. The request is idempotent.
        """
        request = w.CursorReset(group=group, resource=resource, to=to, timestamp=timestamp_us, force=force)
        return replied(request, w.CursorWasReset)

    @asks
    def cursor_delete(self, group: str, resource: str) -> Question[None]:
        """Delete a group's position."""
        return removed(w.CursorDelete(group=group, resource=resource), w.UNKNOWN_CURSOR)

    # --- queues ---------------------------------------------------------------------------------------------

    @asks
    def queues(self, queue: str | None = None, resource: str | None = None) -> Question[list[w.QueueInfo]]:
        """The counts of ready, delivered, delayed and dead contents in queues: of a name, a resource, both, or all."""
        request = w.QueueDescribe(group=queue, resource=resource)
        return question(request, w.QueueList, lambda reply: reply.queues)

    @asks
    def queue_delete(self, queue: str, resource: str) -> Question[None]:
        """Delete a queue's record of settled contents. `Refused` 409 "in-use" while it has consumers."""
        return removed(w.QueueDelete(group=queue, resource=resource), w.UNKNOWN_QUEUE)

    # --- stages ---------------------------------------------------------------------------------------------

    @asks
    def stage_commit(
        self,
        application: str,
        version: int,
        stages: str | Iterable[str],
        query: str | None = None,
        *,
        truncate: str | Iterable[str] = (),
        digest: Mapping[str, str] | None = None,
    ) -> Question[w.Committed]:
        """Publish the stages' contents atomically, in this order, once per (application, version). The former contents
        of the resources in `truncate` are removed in the same step.

        Idempotent: a repetition has no effect and gets the same answer, with `already`. `digest` describes the contents
        by at most 16 named texts of 255 characters, such as a count and a hash. The broker keeps them with the version.
        A repetition has to have the same values for the names that both have, else it is `Refused` 409
        "other-contents". `Refused` 409 "rolled-back" if the application has committed a later version, 404
        "unknown-stage" if a stage is gone.
        """
        request = w.StageCommit(
            application=application,
            version=version,
            stages=listed(stages),
            query=query,
            truncate=listed(truncate),
            digest=dict(digest or {}),
        )
        return replied(request, w.Committed)

    @asks
    def stage_abort(self, stages: str | Iterable[str]) -> Question[None]:
        """Discard stages; unknown and committed ones are left alone."""
        return question(w.StageAbort(stages=listed(stages)), w.Ok, lambda _: None)

    @asks
    def stages(self, application: str | None = None) -> Question[w.StageList]:
        """The stages that are not committed, and the last committed version of each application."""
        return replied(w.StageDescribe(application=application), w.StageList)

    @asks
    def stage_forget(self, application: str) -> Question[None]:
        """Delete the last committed version of an application, so that it may start from any version."""
        return removed(w.StageForget(application=application), w.UNKNOWN_APPLICATION)


def own_name(ready: w.Ready, name: str) -> str:
    """See `Administration.own_name`."""
    return name if ready.user is None else f"{ready.user}.{name}"


def describing(
    names: str | Iterable[str] | None = None,
    pattern: str | None = None,
    after: Mapping[str, int] | None = None,
    incarnations: Mapping[str, str] | None = None,
    wait: float = 0.0,
    *,
    history: bool = False,
) -> w.ResourceDescribe:
    """The request of `Administration.describe`."""
    return w.ResourceDescribe(
        resources=None if names is None else listed(names),
        pattern=pattern,
        after=None if after is None else dict(after),
        incarnations=None if incarnations is None else dict(incarnations),
        wait=int(wait * 1000),
        history=history,
    )


def _reply(outcome: w.Reply | Refused, _attempts: int) -> w.Reply:
    if isinstance(outcome, Refused):
        raise outcome
    return outcome


def by_name(found: w.DescriptionList, wanted: Iterable[str] = ()) -> dict[str, w.Description]:
    """Descriptions by the names of their resources. Malformed if one that is `wanted` is missing."""
    described = {description.resource: description for description in found.resources}
    for name in wanted:
        if name not in described:
            raise Malformed(f"the reply to {w.ResourceDescribe.command} does not describe {name!r}")
    return described
