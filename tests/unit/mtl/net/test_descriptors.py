from __future__ import annotations

import resource

import pytest

from mtl.net.descriptors import raise_file_limit


def test_the_limit_of_open_files_becomes_the_systems_maximum() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (before[1] - 1, before[1]))
    try:
        raise_file_limit()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_file_limit_that_cannot_be_raised_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr("resource.setrlimit", refuse)
    raise_file_limit()
    assert "current limit exceeds maximum limit" in caplog.text
