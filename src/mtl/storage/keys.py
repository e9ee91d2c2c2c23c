"""Names of logs: one for each resource, and one for each resource that a stage writes to."""

from __future__ import annotations

from mtl.storage.records import ResourceRecord, StageRecord

LogKey = str
"""`resources/<id>` or `stages/<stage>/<n>`; in a data directory also the path of the log."""


def log_key(record: ResourceRecord) -> LogKey:
    """The log of a resource: named by an id of its own, so that a new life never meets an old one's contents."""
    return f"resources/{record.log}"


def staged_log_key(record: StageRecord, resource: str) -> LogKey:
    """The log in which a stage keeps the contents for `resource`."""
    return f"{place_of(record)}/{sorted(record.incarnations).index(resource)}"


def staged_log_keys(record: StageRecord) -> tuple[LogKey, ...]:
    """Every log that a stage may have."""
    return tuple(staged_log_key(record, resource) for resource in record.incarnations)


def place_of(record: ResourceRecord | StageRecord) -> str:
    """Where the logs of a record are: the log of a resource, or what the names of a stage's logs begin with."""
    return log_key(record) if isinstance(record, ResourceRecord) else f"stages/{record.stage}"
