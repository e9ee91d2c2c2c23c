"""The check that a repeated Stage.Commit has the contents of the first one (PROTOCOL.md 5.5)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from mtl.broker.stages.stages import Stage
from mtl.errors import Refused
from mtl.storage.records import ApplicationRecord
from mtl.wire import control as w

log = logging.getLogger("mtl.broker")


def check(request: w.StageCommit, committed: Mapping[str, str]) -> None:
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
            w.OTHER_CONTENTS,
            f"version {request.version} of application {request.application!r} was committed with other contents "
            f"({values}): this is another batch under its number, because the writer's own state was rolled back or "
            "copied, or the batch is not repeatable. Nothing was published now; the contents of the first commit stay. "
            f"`mtl stages forget {request.application}` if these contents shall be published, too",
            version=request.version,
            digest=dict(committed),
        )


def warn(request: w.StageCommit, last: ApplicationRecord, again: Sequence[Stage]) -> None:
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
