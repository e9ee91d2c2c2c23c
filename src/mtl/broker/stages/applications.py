"""Applications: the last commit of each, by which a repeated Stage.Commit is recognized. PROTOCOL.md 5.5."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from mtl.broker import limits as broker_limits
from mtl.broker.access.caller import Caller
from mtl.broker.outbox import Deletion, Outbox, remove
from mtl.broker.quotas.pools import Pool
from mtl.broker.quotas.quotas import Quota, Quotas
from mtl.broker.sorted_keys import Page, SortedKeys
from mtl.broker.stages.stages import Visible
from mtl.errors import Refused
from mtl.storage.records import ApplicationRecord, PublishRecord, record_key
from mtl.storage.unreadable import Unreadable
from mtl.wire import control

_PUBLISHED_OCTETS = 64
"""Most octets of a resource's position and number of contents in a reply, in JSON."""

ApplicationKey = tuple[str, str]
"""(virtual host, application)."""


class Applications:
    """The last commit of every application. It is known from the commit point on, before its contents are visible."""

    def __init__(self, outbox: Outbox, unreadable: Unreadable, quotas: Quotas) -> None:
        self._outbox = outbox
        self._unreadable = unreadable
        self._quotas = quotas
        self._pool = Pool(quotas, Quota.APPLICATIONS)
        """The applications that are known or that commit for the first time."""
        self._applications: dict[ApplicationKey, ApplicationRecord] = {}
        self._keys: SortedKeys[ApplicationKey] = SortedKeys()
        self._committing: set[ApplicationKey] = set()
        self._forgetting: set[ApplicationKey] = set()

    def remember(self, record: ApplicationRecord) -> None:
        """Remember an application's last commit."""
        key = (record.vhost, record.application)
        if key not in self._applications:
            self._keys.add(key)
            if key not in self._committing:
                self._pool.add(record.owner)
        self._applications[key] = record

    def find(self, key: ApplicationKey) -> ApplicationRecord | None:
        """The last commit of an application."""
        return self._applications.get(key)

    def __getitem__(self, key: ApplicationKey) -> ApplicationRecord:
        return self._applications[key]

    def page(
        self,
        vhost: str,
        application: str | None,
        after: Sequence[str] | None,
        visible: Visible,
        beginnings: Sequence[str],
    ) -> Page[ApplicationKey]:
        """A page of the applications that are `visible`, with the resources of their last commits: one, or all with one
        of the `beginnings`, sorted by name.
        """

        def wanted(keys: list[ApplicationKey]) -> list[bool]:
            return visible([(key[1], self._applications[key].published) for key in keys])

        if application is None:
            return self._keys.page((vhost,), after, wanted, beginnings=beginnings)
        return self._keys.page((vhost, application), after, wanted)

    def describe(self, keys: Iterable[ApplicationKey]) -> Iterator[control.ApplicationInfo]:
        """Applications for Stage.Describe."""
        return (_application_info(self._applications[key]) for key in keys)

    def last_of(self, vhost: str, application: str, query: str | None) -> ApplicationRecord | None:
        """The last commit of an application. A new application `<user>.<query>` continues from the application
        `<query>` if that was this query's (`_before_users`).
        """
        last = self._applications.get((vhost, application))
        key = _before_users(vhost, application, query)
        earlier = self._applications.get(key) if key is not None else None
        if last is not None or earlier is None or earlier.query != query:
            return last
        return msgspec.structs.replace(earlier, application=application)

    # --- commits --------------------------------------------------------------------------------------------

    def check(self, key: ApplicationKey, query: str | None) -> None:
        """Raises `Refused` 503 when the application's last commit is unknown, may be incomplete, or is being forgotten;
        the same for the application that a new one continues (`last_of`).
        """
        self._check_not_forgotten(key)
        self._check_readable(key)
        earlier = _before_users(*key, query)
        if key not in self._applications and earlier is not None:
            self._check_readable(earlier)
            self._check_not_forgotten(earlier)
            if earlier in self._committing:
                raise Refused(
                    503, control.OVERLOADED, f"a commit of {earlier[1]!r} has not ended yet; try again"
                )

    def admit(self, key: ApplicationKey, principal: str) -> None:
        """Raises `Refused` 403 or 503 when there is no room for a new application of this principal."""
        if key not in self._applications:
            self._pool.check(principal)

    def begin_commit(self, key: ApplicationKey, principal: str, last: ApplicationRecord | None) -> str:
        """A commit begins. Returns the owner of the application: the user whose quotas count it."""
        owner = self._quotas.owner(principal) if last is None else last.owner
        if key not in self._applications:
            self._pool.add(owner)
        self._committing.add(key)
        return owner

    def end_commit(self, key: ApplicationKey, owner: str) -> None:
        """A commit has ended, perhaps without an effect."""
        self._committing.discard(key)
        if key not in self._applications:
            self._pool.remove(owner)

    def _check_readable(self, key: ApplicationKey) -> None:
        kinds = (PublishRecord,) if key in self._applications else (ApplicationRecord, PublishRecord)
        for kind in kinds:
            self._unreadable.check(kind, record_key(*key), f"the last commit of application {key[1]!r}")

    # --- Stage.Forget ---------------------------------------------------------------------------------------

    async def forget(self, caller: Caller, request: control.StageForget) -> control.Ok:
        """Stage.Forget: forget an application's last commit. Needed after a checkpoint was rolled back on purpose."""
        application = request.application
        key = (caller.vhost, application)
        record = self._applications.get(key)
        if record is None and self._unreadable.has_key(ApplicationRecord, record_key(*key)):
            record = ApplicationRecord(*key, 0, "", {}, 0)
        if record is None:
            self._unreadable.check(ApplicationRecord, record_key(*key), f"application {application!r}")
            raise Refused(
                404, control.UNKNOWN_APPLICATION, f"application {application!r} never committed anything"
            )
        if key in self._committing:
            raise Refused(503, control.OVERLOADED, f"application {application!r} is committing; try again")
        self._check_not_forgotten(key)
        known = key in self._applications
        self._forgetting.add(key)

        def over(gone: bool) -> None:
            self._forgetting.discard(key)
            if gone:
                forgotten = self._applications.pop(key, None)
                if forgotten is not None:
                    self._keys.discard(key)
                    self._pool.remove(forgotten.owner)
                self._unreadable.resolved(ApplicationRecord, record_key(*key))

        deletion = Deletion((record,) if known else (), over, damaged=() if known else (record,))
        await remove(self._outbox, [deletion])
        return control.Ok()

    def _check_not_forgotten(self, key: ApplicationKey) -> None:
        """Raises `Refused` 503 while it is unknown whether the application is forgotten."""
        if key in self._forgetting:
            raise Refused(503, control.OVERLOADED, f"application {key[1]!r} is being forgotten; try again")


def _before_users(vhost: str, application: str, query: str | None) -> ApplicationKey | None:
    """The name that a query's application has as long as the broker has no users. An operator who adds users restarts
    the query with one; a batch that was published just before the restart must not be published again.
    """
    return (vhost, query) if query and application.endswith(f".{query}") else None


def committed(record: ApplicationRecord, *, already: bool) -> control.Committed:
    """The answer to a Stage.Commit."""
    published, omitted = _published(record)
    return control.Committed(already=already, resources=published, omitted=omitted, digest=record.digest)


def _published(record: ApplicationRecord) -> tuple[dict[str, control.Published], int | None]:
    """The resources of a commit as far as they fit a reply, and the number of the others, if there are any."""
    fitting: dict[str, control.Published] = {}
    octets = 0
    for name, (first, contents) in record.published.items():
        octets += len(msgspec.json.encode(name)) + _PUBLISHED_OCTETS
        if octets > broker_limits.PAGE_OCTETS:
            return fitting, len(record.published) - len(fitting)
        fitting[name] = control.Published(first=first, contents=contents)
    return fitting, None


def _application_info(record: ApplicationRecord) -> control.ApplicationInfo:
    published, omitted = _published(record)
    return control.ApplicationInfo(
        application=record.application,
        version=record.version,
        digest=record.digest,
        query=record.query or None,
        resources=published,
        omitted=omitted,
        committed=record.committed_us,
        replays=record.replays,
    )
