"""Commits whose record cannot be read: the resources in which such a commit may be incomplete.

A commit past its commit point is redone at the start by its record `publish`. Without it the contents that the commit
has already placed are not known, and they must not be visible. The application's last commit names the resources.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mtl.errors import Damaged
from mtl.storage.keys import LogKey, log_key
from mtl.storage.records import (
    AnyRecord,
    ApplicationRecord,
    PublishRecord,
    RecordDamage,
    ResourceRecord,
    StageRecord,
)


def barred(records: Sequence[AnyRecord], damages: Sequence[RecordDamage]) -> dict[LogKey, Damaged]:
    """The logs that must not be opened, and the reasons. If the commit's application is not known: the logs of every
    application with stages of the version that it committed last, since a complete commit leaves no stages.
    """
    unreadable = [d for d in damages if d.kind == PublishRecord.kind]
    logs = {(r.vhost, r.name): log_key(r) for r in records if isinstance(r, ResourceRecord)}
    reasons: dict[LogKey, Damaged] = {}
    for application in _interrupted(records, unreadable):
        for name in application.published:
            key = logs.get((application.vhost, name))
            if key is not None:
                reasons[key] = Damaged(
                    f"version {application.version} of application {application.application!r} was being committed, "
                    "and its record cannot be read; `mtl recover` on the data directory undoes the commit"
                )
    return reasons


def _interrupted(
    records: Sequence[AnyRecord], unreadable: Sequence[RecordDamage]
) -> Iterator[ApplicationRecord]:
    staged = {(r.vhost, r.application, r.version) for r in records if isinstance(r, StageRecord)}
    known = {d.key for d in unreadable}
    redone = {r.key for r in records if isinstance(r, PublishRecord)}
    for record in records:
        if not isinstance(record, ApplicationRecord) or record.key in redone:
            continue
        is_staged = (record.vhost, record.application, record.version) in staged
        if record.key in known or (None in known and is_staged):
            yield record
