from __future__ import annotations

import logging
import re
from types import SimpleNamespace
from typing import Any

import pytest

from pyspark_mtl import listener
from pyspark_mtl.listener import LagListener
from tests.support.texts import in_order


def event(name: str | None, left: int, **more: Any) -> Any:
    source = {
        "endOffset": {"resources": {"a": {"i": "x", "n": 5}}, "version": 1},
        "latestOffset": {
            "resources": {"a": {"i": "x", "n": 5 + left, "bytes": 10 * left, "since": 1_000_000}},
            "version": 1,
        },
    }
    progress = {"name": name, "id": "id1", "timestamp": "1970-01-01T00:00:03Z", "sources": [source], **more}
    return SimpleNamespace(progress=SimpleNamespace(**progress))


def test_the_last_lag_of_each_query_is_kept_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    lags = LagListener()
    with caplog.at_level(logging.INFO):
        for progress in (event("q", 9), event("q", 3), event(None, 1)):
            lags.onQueryStarted(progress)
            lags.onQueryProgress(progress)
            lags.onQueryIdle(progress)
            lags.onQueryTerminated(progress)
    assert lags.lag == {
        "q": {"a": {"contents": 3, "bytes": 30, "seconds": 2.0}},
        "id1": {"a": {"contents": 1, "bytes": 10, "seconds": 2.0}},
    }
    assert re.search(in_order("q", "a", "3 contents", "30 bytes", "2.0 s"), caplog.messages[1])


def test_queries_without_an_mtl_source_are_skipped() -> None:
    lags = LagListener()
    lags.onQueryProgress(event("q", 1, sources=[]))
    assert lags.lag == {}


def test_a_query_whose_resources_are_deleted_has_no_lag() -> None:
    lags = LagListener()
    lags.onQueryProgress(event("q", 1))
    nothing = {"resources": {}, "version": 1}
    lags.onQueryProgress(event("q", 1, sources=[{"endOffset": nothing, "latestOffset": nothing}]))
    assert lags.lag == {}


def test_remembered_queries_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "LAST_QUERIES", 2)
    lags = LagListener()
    for name in ("one", "two", "one", "three"):
        lags.onQueryProgress(event(name, 1))
    assert set(lags.lag) == {"one", "three"}
