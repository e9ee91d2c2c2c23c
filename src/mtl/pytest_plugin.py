"""The pytest fixture `mtl_broker`: a real broker for one test, on a free port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mtl.testing import RunningBroker, broker


@pytest.fixture
def mtl_broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A running broker with its data below the test's tmp_path; stopped at the end, or killed after an error."""
    with broker(data=tmp_path / "mtl-broker") as running:
        yield running
