"""Names of logs: one for each resource, and one for each resource that a stage writes to."""

from __future__ import annotations

from mtl.storage.records import ResourceRecord, StageRecord

LogKey = str
"""`resources/<id>` or `stages/<stage>/<n>`; in a data directory also the path of the log."""


def log_key(record: ResourceRecord) -> LogKey:
    """The log of a resource. Its id is unique, so that a resource that is created again never has old contents."""
    return f"resources/{record.log}"


def staged_log_key(record: StageRecord, resource: str) -> LogKey:
    """The log in which a stage keeps the contents for `resource`."""
    return f"{directory_of(record)}/{sorted(record.incarnations).index(resource)}"


def staged_log_keys(record: StageRecord) -> tuple[LogKey, ...]:
    """All logs that a stage may have."""
    return tuple(staged_log_key(record, resource) for resource in record.incarnations)


def directory_of(record: ResourceRecord | StageRecord) -> str:
    """The place of a record's logs: the log of a resource, or the prefix of the names of a stage's logs."""
    return log_key(record) if isinstance(record, ResourceRecord) else f"stages/{record.stage}"
