"""Names of one user, and what they cost another one whose rights are a pattern."""

from __future__ import annotations

from collections.abc import Iterator

from mtl.testing import RunningBroker
from tests.hostile.harness import PASSWORD, scenario
from tests.hostile.scenarios.control import answers
from tests.support.minimal_client import MinimalClient, minimal_client

PATTERN = "(alpha|beta|gamma)-seen[.][a-z]{3}"
"""Without a common beginning: it is compared with every name."""
SEEN = ("alpha-seen.abc", "gamma-seen.xyz")
LONG = "|".join(f"{number:06}-seen" for number in range(80))
"""With few names a longer pattern costs the same."""


def everything(client: MinimalClient, command: str, member: str) -> list[str]:
    """The names in all pages of an answer; every page has to be granted, and to tell nothing else."""
    names: list[str] = []
    more: dict[str, object] = {}
    while True:
        code, answer = client.ask(command, **more)
        assert code == 200, f"{command}: {code} {answer}"
        names += [entry["resource"] for entry in answer[member]]
        assert "hidden-" not in str(answer), answer
        if answer.get("continue") is None:
            return names
        more = {"continue": answer["continue"]}


@scenario(
    users={
        "names-many": ("manage hidden-.*",),
        "names-few": (f"read {PATTERN}", f"read {LONG}"),
    },
    memory=128,
)
def names_that_another_may_not_see(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Thousands of long names of one user: lists of another one, whose rights are patterns, are complete, and tell
    nothing of them.
    """
    count, rounds = (7_000, 20) if heavy else (250, 3)
    with (
        minimal_client(broker.endpoint) as admin,
        minimal_client(broker.endpoint, login=("names-many", PASSWORD)) as many,
        minimal_client(broker.endpoint, login=("names-few", PASSWORD)) as few,
    ):
        for name in SEEN:
            assert admin.ask("Resource.Create", resource=name)[0] == 200
        long = "hidden-" + "n" * 230
        bodies = ({"resource": f"{long}{number:06}", "durability": "os"} for number in range(count))
        assert {code for code, _ in answers(many, "Resource.Create", bodies)} == {200}
        for _ in range(rounds):
            for command, member in (("Resource.List", "resources"), ("Resource.Describe", "resources")):
                assert tuple(everything(few, command, member)) == SEEN
            assert everything(few, "Queue.Describe", "queues") == []
        yield f"{count:,} names of 243 characters, listed {3 * rounds} times for patterns of {len(PATTERN) + len(LONG)}"
