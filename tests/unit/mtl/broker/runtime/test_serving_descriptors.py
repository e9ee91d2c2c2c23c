from __future__ import annotations

import pytest

from mtl.broker.runtime.serving import report_file_sizes


@pytest.mark.parametrize(("limit", "reported"), [(None, False), (1_000_000, False), (999_999, True)])
def test_a_limit_of_file_sizes_below_a_segment_is_reported(
    limit: int | None, reported: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for module in ("mtl.log.files", "mtl.broker.runtime.serving"):
        monkeypatch.setattr(f"{module}.file_limit", lambda: limit)
    report_file_sizes(1_000_000)
    assert ("a file of this process may have 999,999 octets" in caplog.text) == reported
