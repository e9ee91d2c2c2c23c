"""The resources that may hold half of a commit whose record cannot be read."""

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
def test_resources_of_the_last_commit_are_barred(key: str | None, logs: set[str]) -> None:
    damages = [RecordDamage("publish", key, "why"), RecordDamage("cursor", None, "why")]
    assert set(barred(RECORDS, damages)) == logs


def test_resources_of_a_readable_commit_are_not_barred() -> None:
    redone = PublishRecord("/", "other", 7, ["s1"], [], 0)
    assert barred([*RECORDS, redone], [RecordDamage("publish", None, "why")]) == {}
    assert barred(RECORDS, []) == {}
