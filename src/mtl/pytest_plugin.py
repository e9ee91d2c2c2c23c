"""The pytest fixture `mtl_broker`: a real broker for one test, on a free port."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mtl.testing import RunningBroker, broker


@pytest.fixture
def mtl_broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """A running broker whose data lies below the test's tmp_path; killed at the end if the test left it in a mess."""
    with broker(data=tmp_path / "mtl-broker") as running:
        yield running
