from __future__ import annotations

import pytest

from mtl.broker.runtime.serving import raise_file_limit


def test_a_file_limit_that_cannot_be_raised_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr("resource.setrlimit", refuse)
    raise_file_limit()
    assert "current limit exceeds maximum limit" in caplog.text
