"""Helpers for tests of commits: stages with contents for the resources "a" and "b", and a check for leftovers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mtl.storage.records import PublishRecord, StageRecord
from mtl.wire import control
from tests.support.core import Client, Rig, Waiting

Contents = dict[str, list[bytes]]


def staged(client: Client, version: int, contents: Contents, application: str = "app") -> str:
    """One sealed stage with contents for several resources."""
    lease = client.stage(application, version, *contents)
    flow = client.flow(lease)
    number = 0
    for resource, bodies in contents.items():
        for body in bodies:
            number += 1
            flow.content(number, body, resource)
    client.close_lease(lease)
    assert lease.stage is not None
    return lease.stage


def visible(client: Client) -> Contents:
    return {name: client.read(name) for name in ("a", "b")}


def commit(
    version: int,
    *stages: str,
    query: str | None = None,
    application: str = "app",
    truncate: Sequence[str] = (),
    digest: Mapping[str, str] | None = None,
) -> control.StageCommit:
    return control.StageCommit(
        application=application,
        version=version,
        stages=list(stages),
        query=query,
        truncate=list(truncate),
        digest=dict(digest or {}),
    )


def begin(
    client: Client, version: int, *stages: str, query: str | None = None, truncate: Sequence[str] = ()
) -> Waiting:
    return client.begin(commit(version, *stages, query=query, truncate=truncate))


def applications(client: Client) -> dict[str, control.ApplicationInfo]:
    found = client.ask(control.StageDescribe(), control.StageList).applications
    return {x.application: x for x in found}


def leavings(rig: Rig) -> list[object]:
    """Files and records that a finished commit must not leave."""
    kept = [r for r in rig.store.load().records if isinstance(r, StageRecord | PublishRecord)]
    return [*kept, *rig.disk.list_dir("/data/stages")]
