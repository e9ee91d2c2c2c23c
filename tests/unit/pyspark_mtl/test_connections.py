from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest

from mtl.client.settings import Settings
from pyspark_mtl import connections
from tests.support.fake_client import DEFAULT, FakeClient, install


def test_tasks_of_a_process_share_a_connection(client: FakeClient) -> None:
    found: object = connections.connection(DEFAULT)
    assert found is client


def test_another_process_or_broker_has_its_own(client: FakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Settings] = []

    def open_connection(settings: Settings) -> FakeClient:
        made.append(settings)
        return FakeClient()

    monkeypatch.setattr("mtl.client.connection.open_connection", open_connection)
    login: dict[str, Any] = {
        "user": "etl",
        "password": "secret",
        "sasl_mechanism": "PLAIN",
        "curve_server_key": "broker.pub",
        "curve_key_file": "etl.key",
    }
    elsewhere = replace(DEFAULT, virtual_host="other", **login)
    install(FakeClient(), monkeypatch, elsewhere)
    del connections._connections[os.getpid(), elsewhere]
    assert connections.connection(elsewhere) is connections.connection(elsewhere)
    assert made == [elsewhere]
    monkeypatch.setattr(os, "getpid", lambda: -1)
    found: object = connections.connection(DEFAULT)
    assert found is not client
    del connections._connections[-1, DEFAULT]
