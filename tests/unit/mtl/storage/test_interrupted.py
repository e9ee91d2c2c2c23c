"""Which resources a commit that cannot be read may have half of its contents in."""

from __future__ import annotations

import pytest

from mtl.storage.interrupted import barred
from mtl.storage.records import (
    AnyRecord,
    ApplicationRecord,
    PublishRecord,
    RecordDamage,
    ResourceRecord,
    StageRecord,
    record_key,
)

RECORDS: list[AnyRecord] = [
    *(ResourceRecord("/", name, "i", f"log-{name}") for name in "abc"),
    ApplicationRecord("/", "app", 5, "", {"a": (1, 1), "gone": (1, 1)}, 0),
    ApplicationRecord("/", "other", 7, "", {"b": (1, 1)}, 0),
    StageRecord("/", "s1", "other", 7, {"b": "i"}, 0),
    StageRecord("/", "s2", "app", 6, {"a": "i"}, 0),
]


@pytest.mark.parametrize(
    ("key", "logs"),
    [
        (record_key("/", "app"), {"resources/log-a"}),
        (record_key("/", "other"), {"resources/log-b"}),
        (record_key("/", "unknown"), set()),
        (None, {"resources/log-b"}),
    ],
)
def test_the_logs_of_the_last_commit(key: str | None, logs: set[str]) -> None:
    damages = [RecordDamage("publish", key, "why"), RecordDamage("cursor", None, "why")]
    assert set(barred(RECORDS, damages)) == logs


def test_a_commit_that_is_redone_is_none_of_them() -> None:
    redone = PublishRecord("/", "other", 7, ["s1"], [], 0)
    assert barred([*RECORDS, redone], [RecordDamage("publish", None, "why")]) == {}
    assert barred(RECORDS, []) == {}
