"""The administrative methods of both connections: resources, groups, queues, stages. One method per command."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from mtl.client.client_requests import ClientRequest, asks, expected, interpreted, removed, replied
from mtl.client.client_requests import listed as pages
from mtl.errors import Malformed, Refused
from mtl.limits import MAX_RESOURCES_PER_LEASE
from mtl.wire import control


def listed(names: str | Iterable[str]) -> list[str]:
    """One name or several as a list; a string is one name."""
    return [names] if isinstance(names, str) else list(names)


class Described(dict[str, control.Description]):
    """Descriptions by the names of their resources.

    `state` stands for the state of all resources at the answer, for a later `describe`; None from a broker without
    states. `removed` has the resources that do not exist any more, in an answer that has only changes; else None.
    """

    def __init__(
        self,
        descriptions: Mapping[str, control.Description],
        state: str | None,
        removed: Sequence[str] | None,
    ) -> None:
        super().__init__(descriptions)
        self.state = state
        self.removed = removed


class Administration:
    """The methods of a connection that are one request each: `ClientRequest[T]` stands for a `T`, which the asyncio
    client awaits. Times in µs are since 1970, UTC.
    """

    @asks
    def ready(self) -> ClientRequest[control.Ready]:
        """The broker's 201 reply, from the opening of the session."""
        return interpreted(None, control.Ready, lambda ready: ready)

    @asks
    def own_name(self, name: str) -> ClientRequest[str]:
        """`name` as a group, queue, writer or application that needs no grant: with the user's name and a dot before
        it, if the broker says that the client has a user (PROTOCOL.md 2.2).
        """
        return interpreted(None, control.Ready, lambda ready: own_name(ready, name))

    @asks
    def request(self, request: control.Request, *, patience: float = 0.0) -> ClientRequest[control.Reply]:
        """Send any request and return its reply. It is repeated until there is an answer or the deadline passes.

        `patience` is how long, in seconds, the broker may hold the request on purpose (a Describe with `wait`).
        """
        return ClientRequest(request, _reply, patience)

    # --- resources ------------------------------------------------------------------------------------------

    @asks
    def create_resource(
        self,
        name: str,
        *,
        durability: control.Durability = "sync",
        retention: control.Retention | None = None,
        exist_ok: bool = False,
        dead_letter: str | None = None,
        max_deliveries: int | None = None,
    ) -> ClientRequest[control.Description]:
        """Create a resource. Returns its `Description`.

            connection.create_resource("orders", retention=mtl.Retention(age=7 * 86_400), exist_ok=True)

        - `durability`: when contents are confirmed: "sync": on the disk; "os": with the operating system, faster and
          lost in a crash of the machine. Default: "sync".
        - `retention`: a `Retention`, by octets, age in seconds, number or groups. Default: all contents are kept.
        - `exist_ok`: whether a resource of this name may exist; it is not changed. Default: no: `Refused` 409 "exists".
        - `dead_letter`: the resource for contents that its queues delivered `max_deliveries` times, or that a consumer
          rejected. Default: the resource's name followed by ".dead".
        - `max_deliveries`: deliveries of a content by a queue until it becomes a dead letter. Default: 10.
        """
        request = control.ResourceCreate(
            resource=name,
            durability=durability,
            retention=retention,
            exist_ok=exist_ok,
            dead_letter=dead_letter,
            max_deliveries=max_deliveries,
        )

        def created(
            outcome: control.Reply | Refused, attempts: int
        ) -> control.Description | ClientRequest[control.Description]:
            if attempts > 1 and isinstance(outcome, Refused) and outcome.reason == control.EXISTS:
                # Created by an attempt whose reply was lost.
                describe = control.ResourceDescribe(resources=[name])
                return interpreted(
                    describe,
                    control.DescriptionList,
                    lambda reply: described([reply], [name], needed=True)[name],
                )
            return expected(outcome, control.ResourceCreated).resource

        return ClientRequest(request, created)

    @asks
    def delete_resource(self, name: str, *, incarnation: str | None = None) -> ClientRequest[None]:
        """Delete a resource with its contents, cursors and leases."""
        return removed(
            control.ResourceDelete(resource=name, incarnation=incarnation), control.UNKNOWN_RESOURCE
        )

    @asks
    def describe(
        self,
        names: str | Iterable[str] | None = None,
        pattern: str | None = None,
        *,
        missing_ok: bool = False,
        since: str | None = None,
        wait: float = 0.0,
        history: bool = False,
    ) -> ClientRequest[Described]:
        """Describe resources. Returns a `Described`: a dict from name to `Description`, with the `state` of all, and
        with the names `removed` since an earlier state.

            before = connection.describe(["orders"])
            print(before["orders"].next)
            changed = connection.describe(["orders"], since=before.state, wait=10.0)

        - `names`: one name or several. Default: those that match `pattern`, or all.
        - `pattern`: a regular expression (RE2) for whole names. Excludes `names`.
        - `missing_ok`: whether names that do not exist are left out. Default: no: `Refused` 404.
        - `since`: the `state` of an earlier answer: only the resources that were created or deleted since then, or have
          new contents, are described. Default: all of them.
        - `wait`: seconds until which an answer to `since` without a change may wait for one. Default: 0.
        - `history`: whether the descriptions have all epochs of the logs. Default: only the last one.
        """
        needed = names is not None and since is None and not missing_ok
        chosen = None if names is None else listed(names)
        if since is None and chosen is not None:
            slices = batched(chosen, MAX_RESOURCES_PER_LEASE) or [[]]
            requests = [describing(part, missing_ok=missing_ok, history=history) for part in slices]
        else:
            requests = [
                describing(chosen, pattern, missing_ok=missing_ok, since=since, wait=wait, history=history)
            ]
        return pages(
            requests,
            control.DescriptionList,
            lambda pages: described(pages, chosen, needed=needed),
            patience=wait,
        )

    @asks
    def list_resources(self, pattern: str | None = None) -> ClientRequest[list[control.Description]]:
        """All resources, or those whose whole name matches the regular expression; sorted by name."""
        return pages(
            [control.ResourceList(pattern=pattern)],
            control.DescriptionList,
            lambda pages: [description for page in pages for description in page.resources],
        )

    @asks
    def locate_time(
        self, resource: str, timestamp_us: int, *, incarnation: str | None = None
    ) -> ClientRequest[tuple[int, bool]]:
        """The sequence of the first content at or after a time and True, or the resource's end and False."""
        request = control.ResourceLocate(resource=resource, timestamp=timestamp_us, incarnation=incarnation)
        return interpreted(request, control.Located, lambda located: (located.sequence, located.match))

    @asks
    def locate_end(
        self,
        resource: str,
        start: int,
        *,
        contents: int | None = None,
        bytes: int | None = None,  # noqa: A002 it is the protocol's word
        incarnation: str | None = None,
    ) -> ClientRequest[int]:
        """The end, exclusive, of at most `contents` contents and `bytes` stored octets from `start` on: at least one
        chunk. Default of both: no limit. Another `incarnation` of the resource is refused (409).
        """
        request = control.ResourceLocate(
            resource=resource, start=start, contents=contents, bytes=bytes, incarnation=incarnation
        )
        return interpreted(request, control.Located, lambda located: located.sequence)

    @asks
    def unread(
        self, resource: str, start: int, contents: int, *, incarnation: str | None = None
    ) -> ClientRequest[control.Located]:
        """Measure at most `contents` contents from `start` on: `bytes` are their stored octets, `timestamp` is the
        append time (µs) of the oldest. `DataLoss` if `start` is gone.
        """
        request = control.ResourceLocate(
            resource=resource, start=start, contents=contents, incarnation=incarnation
        )
        return replied(request, control.Located)

    # --- groups ---------------------------------------------------------------------------------------------

    @asks
    def cursor_open(
        self,
        group: str,
        resource: str,
        *,
        start: Literal["earliest", "latest"] | int = "earliest",
        incarnation: str | None = None,
    ) -> ClientRequest[control.CursorOpened]:
        """Create a group's durable position in a resource, or return the existing one."""
        request = control.CursorOpen(group=group, resource=resource, from_=start, incarnation=incarnation)
        return replied(request, control.CursorOpened)

    @asks
    def cursors(
        self, group: str | None = None, resource: str | None = None
    ) -> ClientRequest[list[control.CursorInfo]]:
        """The positions of groups, including all Confirms so far."""
        request = control.CursorDescribe(group=group, resource=resource)
        return pages(
            [request], control.CursorList, lambda pages: [cursor for page in pages for cursor in page.cursors]
        )

    @asks
    def cursor_reset(
        self,
        group: str,
        resource: str,
        to: Literal["earliest", "latest"] | int | None = None,
        *,
        timestamp_us: int | None = None,
        force: bool = False,
    ) -> ClientRequest[control.CursorWasReset]:
        """Move a group's position forward or back. Returns the positions before and after. The request is idempotent.

            connection.cursor_reset("billing", "orders", "earliest")

        - `to`: "earliest", "latest" or a sequence.
        - `timestamp_us`: instead of `to`: the first content at or after this time, in µs since 1970 (UTC).
        - `force`: whether to end the leases of a reader that holds the cursor, as a newer holder would. Default: no:
          `Refused` 409 "in-use".

        `Refused` 404 "unknown-cursor" if the group has no position there.
        """
        request = control.CursorReset(
            group=group, resource=resource, to=to, timestamp=timestamp_us, force=force
        )
        return replied(request, control.CursorWasReset)

    @asks
    def cursor_delete(self, group: str, resource: str) -> ClientRequest[None]:
        """Delete a group's position."""
        return removed(control.CursorDelete(group=group, resource=resource), control.UNKNOWN_CURSOR)

    # --- queues ---------------------------------------------------------------------------------------------

    @asks
    def queues(
        self, queue: str | None = None, resource: str | None = None
    ) -> ClientRequest[list[control.QueueInfo]]:
        """The counts of ready, delivered, delayed and dead contents in queues: of a name, a resource, both, or all."""
        request = control.QueueDescribe(group=queue, resource=resource)
        return pages(
            [request], control.QueueList, lambda pages: [queue for page in pages for queue in page.queues]
        )

    @asks
    def queue_delete(self, queue: str, resource: str) -> ClientRequest[None]:
        """Delete a queue's record of settled contents. `Refused` 409 "in-use" while it has consumers."""
        return removed(control.QueueDelete(group=queue, resource=resource), control.UNKNOWN_QUEUE)

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
    ) -> ClientRequest[control.Committed]:
        """Publish the stages' contents atomically, once per application and version. Returns a `Committed`. A
        repetition has no effect and gets the same answer, with `already`.

            stage = mtl.StageSpec(application="nightly", version=7)
            with connection.writer("orders", stage=stage) as writer:
                writer.send(b"...")
                sealed = writer.seal()
            connection.stage_commit("nightly", 7, sealed.stage)

        - `application`, `version`: the identity of the commit; versions of an application ascend.
        - `stages`: one id or several, from `Writer.seal`. Their contents are published in this order.
        - `query`: the id of the query that commits. An application `USER.QUERY` that is not known continues the
          application `QUERY`, if the last commit of that was by this query (PROTOCOL.md 2.2). Default: none.
        - `truncate`: names of resources whose former contents are removed in the same step. Default: none.
        - `digest`: at most 16 named texts of 255 characters that describe the contents, such as a count and a hash. The
          broker keeps them with the version. A repetition has to have the same values for the names that both have.
          Default: none.

        `Refused` 409 "other-contents" if the digest of a repetition differs, 409 "rolled-back" if the application has
        committed a later version, 404 "unknown-stage" if a stage is gone.
        """
        request = control.StageCommit(
            application=application,
            version=version,
            stages=listed(stages),
            query=query,
            truncate=listed(truncate),
            digest=dict(digest or {}),
        )
        return replied(request, control.Committed)

    @asks
    def stage_abort(self, stages: str | Iterable[str]) -> ClientRequest[None]:
        """Discard stages; unknown and committed ones are left alone."""
        return interpreted(control.StageAbort(stages=listed(stages)), control.Ok, lambda _: None)

    @asks
    def stages(self, application: str | None = None) -> ClientRequest[control.StageList]:
        """The stages that are not committed, and the last committed version of each application."""
        return pages(
            [control.StageDescribe(application=application)],
            control.StageList,
            lambda pages: control.StageList(
                stages=[stage for page in pages for stage in page.stages],
                applications=[application for page in pages for application in page.applications],
            ),
        )

    @asks
    def stage_forget(self, application: str) -> ClientRequest[None]:
        """Delete the last committed version of an application, so that it may start from any version."""
        return removed(control.StageForget(application=application), control.UNKNOWN_APPLICATION)


def own_name(ready: control.Ready, name: str) -> str:
    """See `Administration.own_name`."""
    return name if ready.user is None else f"{ready.user}.{name}"


def describing(
    names: Sequence[str] | None = None,
    pattern: str | None = None,
    *,
    missing_ok: bool = False,
    since: str | None = None,
    wait: float = 0.0,
    history: bool = False,
) -> control.ResourceDescribe:
    """The request of `Administration.describe`. For more names than fit a request it asks for the changes of all
    resources, of which `described` keeps those with these names.
    """
    if names is not None and len(names) > MAX_RESOURCES_PER_LEASE:
        names = None
    return control.ResourceDescribe(
        resources=None if names is None else list(names),
        pattern=pattern,
        missing_ok=missing_ok,
        since=since,
        wait=int(wait * 1000),
        history=history,
    )


def _reply(outcome: control.Reply | Refused, _attempts: int) -> control.Reply:
    if isinstance(outcome, Refused):
        raise outcome
    return outcome


def described(
    pages: Sequence[control.DescriptionList], names: Sequence[str] | None, *, needed: bool = False
) -> Described:
    """The answer of `Administration.describe`, from its pages: the resources `names`, or all. Malformed if one of them
    that is `needed` is missing.
    """
    first, wanted = pages[0], None if names is None else set(names)
    by_name = {
        description.resource: description
        for page in pages
        for description in page.resources
        if wanted is None or description.resource in wanted
    }
    for name in names or () if needed else ():
        if name not in by_name:
            raise Malformed(f"the reply to {control.ResourceDescribe.command} does not describe {name!r}")
    removed = None if first.removed is None else [n for n in first.removed if wanted is None or n in wanted]
    return Described(by_name, first.state, removed)


def batched(names: Sequence[str], size: int) -> list[Sequence[str]]:
    """`names` in parts of at most `size`."""
    return [names[at : at + size] for at in range(0, len(names), size)]
