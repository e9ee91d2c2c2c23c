"""The audit log: lines that somebody would like to hide behind others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from mtl.testing import RunningBroker
from tests.hostile.harness import PASSWORD, scenario
from tests.hostile.scenarios.control import answers
from tests.support.minimal_client import minimal_client

PATIENCE_S = 20.0


def await_lines(log: Path, *parts: str) -> str:
    """The log's text when it has a line with all of these parts; it is written by another process."""
    until = time.monotonic() + PATIENCE_S
    while True:
        text = log.read_text(encoding="utf-8")
        if any(all(part in line for part in parts) for line in text.splitlines()):
            return text
        assert time.monotonic() < until, f"no line has {parts}"
        time.sleep(0.05)


@scenario(
    users={
        "audit-burst": ("manage burst-.*",),
        "audit-loud": ("read loud",),
        "audit-quiet": ("read quiet",),
    }
)
def lines_hidden_behind_others(broker: RunningBroker, heavy: bool) -> Iterator[str]:
    """Changes have their lines after any number of others, and a user's refusal has its line after any number of those
    of another user at the same address.
    """
    changes, refusals = (2_000, 20_000) if heavy else (205, 300)
    with (
        minimal_client(broker.endpoint, login=("audit-burst", PASSWORD)) as burst,
        minimal_client(broker.endpoint, login=("audit-loud", PASSWORD)) as loud,
        minimal_client(broker.endpoint, login=("audit-quiet", PASSWORD)) as quiet,
    ):
        names = [*(f"burst-{number}" for number in range(changes)), "burst-that-matters"]
        named = [{"resource": name} for name in names]
        for command in ("Resource.Create", "Resource.Delete"):
            assert {code for code, _ in answers(burst, command, named)} == {200}
        refused = answers(loud, "Resource.Delete", [{"resource": "loud"}] * refusals)
        assert {code for code, _ in refused} == {403}
        assert quiet.ask("Resource.Delete", resource="quiet")[0] == 403
        assert quiet.ask("Connection.Reader", resources=["burst-0"])[0] == 403
        await_lines(broker.log, "not-authorized", '"audit-quiet"', "Connection.Reader")
        text = await_lines(broker.log, "not-authorized", '"audit-quiet"', "Resource.Delete")
        lines = [line for line in text.splitlines() if "resource-deleted" in line]
        missing = [name for name in names if not any(f'"{name}"' in line for line in lines)]
        assert not missing, f"deletions without a line: {missing[:3]}"
        loud_lines = sum("not-authorized" in line and "audit-loud" in line for line in text.splitlines())
        assert loud_lines < refusals, "the lines of refusals have no limit"
        yield f"{changes:,} deletions and {refusals:,} refusals, then one of each that matters"
