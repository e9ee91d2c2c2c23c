"""Stages: a user that names the stages of another one in its own commits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mtl.testing import RunningBroker
from tests.hostile.harness import PASSWORD, scenario
from tests.hostile.scenarios.control import answers
from tests.support.minimal_client import MinimalClient, minimal_client

RESOURCE = "staged"


def staged(client: MinimalClient, application: str, version: int) -> str:
    """A sealed stage with one content."""
    stage = {"application": application, "version": version}
    lease = client.granted("Writer", resources=[RESOURCE], confirm="full", stage=stage)
    writer = client.connect(lease["port"])
    writer.lease(lease["lease"])
    writer.content(1, b"staged", RESOURCE)
    writer.await_confirm(1)
    writer.dealer.close()
    assert client.ask("Lease.Close", lease=lease["lease"])[0] == 200
    return str(lease["stage"])


def codes(client: MinimalClient, *commits: dict[str, Any]) -> list[int]:
    """The codes of commits that are sent at once."""
    return [code for code, _ in answers(client, "Stage.Commit", commits)]


@scenario(
    users={
        "stages-etl": ("read staged", "write staged"),
        "stages-thief": ("read staged", "write staged"),
    }
)
def stages_of_another_application(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """A user with the same rights on the resource learns no id of a stage of another user's application, and cannot
    destroy a stage whose id it has: by a repeated commit of its own application, by one that joins a commit under way,
    by a first commit, by Stage.Abort or by continuing it.
    """
    rounds = 300 if heavy else 8
    own, theirs = "stages-thief.app", "stages-etl.copy"
    with (
        minimal_client(broker.endpoint) as admin,
        minimal_client(broker.endpoint, login=("stages-etl", PASSWORD)) as etl,
        minimal_client(broker.endpoint, login=("stages-thief", PASSWORD)) as thief,
    ):
        assert admin.ask("Resource.Create", resource=RESOURCE)[0] == 200
        for number in range(1, rounds + 1):
            target = staged(etl, theirs, number)
            commit = {"application": own, "version": number, "stages": [staged(thief, own, number)]}
            again = {"application": own, "version": number, "stages": [target]}
            found = sorted(codes(thief, commit, again, again))
            assert found == [200, 400, 400], f"a commit under way, and those that join it: {found}"
            assert codes(thief, again, {**again, "version": number + 1}) == [400, 400], (
                "finished, and the first one"
            )
            assert thief.ask("Stage.Abort", stages=[target])[0] == 403
            spec = {"application": own, "version": number, "id": target}
            assert thief.ask("Connection.Writer", resources=[RESOURCE], confirm="full", stage=spec)[0] >= 400
            for named in ({}, {"application": theirs}, {"stage": target}):
                code, answer = thief.ask("Stage.Describe", **named)
                assert code == 200
                assert all(stage["application"] == own for stage in answer["stages"]), (
                    f"{named} shows {answer}"
                )
            if number % 2:
                committed = {"application": theirs, "version": number, "stages": [target]}
                code, answer = etl.ask("Stage.Commit", **committed)
                assert code == 200, f"the commit of the stage's owner: {code} {answer}"
                assert answer["resources"][RESOURCE]["contents"] == 1
        yield f"{rounds:,} stages of another user, each named in six requests"
