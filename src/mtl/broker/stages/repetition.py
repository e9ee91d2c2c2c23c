"""The checks that a repeated Stage.Commit is the first one again, with the same contents (PROTOCOL.md 5.5)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from mtl.broker.stages.stages import Stage, stage_of_another
from mtl.errors import Refused
from mtl.storage.records import ApplicationRecord
from mtl.wire import control

log = logging.getLogger("mtl.broker")


def check_stage(stage: Stage, request: control.StageCommit) -> None:
    """Raises `Refused` 400 for a stage that was opened for another application or version."""
    if (stage.record.application, stage.record.version) != (request.application, request.version):
        raise stage_of_another(stage, request.application, request.version)


def check_query(request: control.StageCommit, version: int, query: str) -> None:
    """Raises `Refused` 409 if another query has reached `version` under this name."""
    if request.query and query and request.query != query:
        raise Refused(
            409,
            control.ROLLED_BACK,
            f"application {request.application!r} was at version {version} by query {query}; "
            f"query {request.query} comes with version {request.version}: the name is reused by another query. "
            f"Give it another txnAppId, or `mtl stages forget {request.application}` if that is meant",
            version=version,
        )


def check_version(request: control.StageCommit, version: int) -> None:
    """Raises `Refused` 409 for a version before the last one that was committed."""
    if request.version < version:
        raise Refused(
            409,
            control.ROLLED_BACK,
            f"application {request.application!r} has committed version {version}; version {request.version} "
            "means that the checkpoint was rolled back or copied, or the txnAppId is reused. "
            f"`mtl stages forget {request.application}` if that is meant",
            version=version,
        )


def check(request: control.StageCommit, committed: Mapping[str, str]) -> None:
    """Raises `Refused` 409 if a digest of the request differs from that of the first commit of this version. Only
    digests that both have are compared.
    """
    differing = [
        name for name, value in sorted(committed.items()) if request.digest.get(name, value) != value
    ]
    if differing:
        values = ", ".join(f"{name} {committed[name]}, now {request.digest[name]}" for name in differing)
        raise Refused(
            409,
            control.OTHER_CONTENTS,
            f"version {request.version} of application {request.application!r} was committed with other contents "
            f"({values}): this is another batch under its number, because the writer's own state was rolled back or "
            "copied, or the batch is not repeatable. Nothing was published now; the contents of the first commit stay. "
            f"`mtl stages forget {request.application}` if these contents shall be published, too",
            version=request.version,
            digest=dict(committed),
        )


def warn(request: control.StageCommit, last: ApplicationRecord, again: Sequence[Stage]) -> None:
    """Log a warning if a commit that is repeated without a digest has other numbers of contents than the first one."""
    staged: Counter[str] = Counter()
    for stage in again:
        staged.update(stage.contents)
    committed = {n: contents for n, (_, contents) in last.published.items() if contents}
    if staged and not request.digest and dict(staged) != committed:
        log.warning(
            "application %r repeats version %d with %s where it committed %s; the first commit is kept",
            last.application,
            last.version,
            dict(staged),
            committed,
        )
