from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from pyspark_mtl import connections
from tests.support.fake_client import DEFAULT, FakeClient, install


def test_tasks_of_a_process_share_a_connection(client: FakeClient) -> None:
    found: object = connections.connection(DEFAULT)
    assert found is client


def test_another_process_or_broker_has_its_own(client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[str, dict[str, Any]]] = []

    def connect(endpoint: str, **asked: Any) -> FakeClient:
        made.append((endpoint, asked))
        return FakeClient()

    monkeypatch.setattr("mtl.client.connect", connect)
    login: dict[str, Any] = {
        "user": "etl",
        "password": "secret",
        "password_file": "file",
        "password_env": "VARIABLE",
        "sasl_mechanism": "PLAIN",
        "curve_server_key": "broker.pub",
        "curve_key_file": "etl.key",
    }
    elsewhere = replace(DEFAULT, virtual_host="other", **login)
    install(FakeClient(), monkeypatch, elsewhere)
    del connections._connections[os.getpid(), elsewhere]
    assert connections.connection(elsewhere) is connections.connection(elsewhere)
    times = {"request_timeout": 5.0, "retry_deadline": 30.0}
    assert made == [("tcp://127.0.0.1:5975", {"virtual_host": "other", **times, **login})]
    monkeypatch.setattr(os, "getpid", lambda: -1)
    found: object = connections.connection(DEFAULT)
    assert found is not client
    del connections._connections[-1, DEFAULT]
