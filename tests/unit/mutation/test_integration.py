"""The integration tests for a mutant."""

from __future__ import annotations

from pathlib import Path

import pytest
from mutation.integration import INTEGRATION, OF_CODE, integration_tests

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(("beginning", "patterns"), OF_CODE)
def test_every_pattern_has_files(beginning: str, patterns: tuple[str, ...]) -> None:
    assert (ROOT / beginning).is_dir()
    assert all(any((ROOT / INTEGRATION).glob(pattern)) for pattern in patterns)


def test_the_first_matching_prefix_selects_the_tests() -> None:
    assert integration_tests("src/mtl/doors/mc0/peer.py", ROOT) == [
        "tests/integration/test_door_mc0.py",
        "tests/integration/test_door_peers.py",
    ]
    assert integration_tests("src/mtl/conformance/twin.py", ROOT) == [
        "tests/integration/test_conformance_tool.py"
    ]
    assert integration_tests("src/another/module.py", ROOT) == []
