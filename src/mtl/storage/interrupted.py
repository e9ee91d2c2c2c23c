"""Commits whose record cannot be read: the resources that such a commit may have put half of its contents into.

A commit past its commit point is redone at the start by its record `publish`. Without it nobody knows where the
contents lie that it has placed, and they must not be shown. What the application committed last names the resources.
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
    """The logs that must not be opened, and why. Where it is not known whose commit it was: those of every application
    that has stages of the version that it committed last, since a commit that is complete leaves none.
    """
    unreadable = [d for d in damages if d.kind == PublishRecord.kind]
    logs = {(r.vhost, r.name): log_key(r) for r in records if isinstance(r, ResourceRecord)}
    found: dict[LogKey, Damaged] = {}
    for application in _interrupted(records, unreadable):
        for name in application.digest:
            key = logs.get((application.vhost, name))
            if key is not None:
                found[key] = Damaged(
                    f"version {application.version} of application {application.application!r} was being committed, "
                    "and its record cannot be read; `mtl recover` on the data directory undoes the commit"
                )
    return found


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
