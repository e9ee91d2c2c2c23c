"""The integration tests for mutants that no unit test executes: they run the code in other processes."""

from __future__ import annotations

from pathlib import Path

INTEGRATION = "tests/integration"

OF_CODE = (
    ("src/mtl/doors/mbws/", ("test_door_mbws*.py", "test_door_page.py", "test_door_peers.py")),
    ("src/mtl/doors/mc0/", ("test_door_mc0.py", "test_door_peers.py")),
    ("src/mtl/doors/micromessage/", ("test_door_micromessage.py", "test_door_peers.py")),
    ("src/mtl/doors/reactive/", ("test_door_reactive*.py", "test_door_peers.py")),
    ("src/mtl/doors/", ("test_doors.py", "test_door_tls.py", "test_door_memory.py", "test_door_mc0.py")),
    ("src/mtl/conformance/", ("test_conformance_tool.py",)),
    ("src/mtl/cli/", ("test_cli*.py", "test_recover.py", "test_audit.py")),
    ("src/mtl/client/aio/", ("test_client_aio.py", "test_door_mc0.py")),
    ("src/mtl/client/", ("test_client_*.py", "test_queue.py", "test_rfc_servers.py", "test_restart.py")),
    ("src/mtl/broker/", ("test_broker_*.py", "minimal/test_*.py", "test_queue.py", "test_security.py")),
    ("src/mtl/", ("test_broker_*.py", "test_client_broker.py", "test_client_local.py")),
    ("src/pyspark_mtl/", ("test_connector_connections.py", "spark/test_*.py")),
)
"""Patterns of files by the beginning of a path; the first match counts."""


def integration_tests(path: str, root: Path) -> list[str]:
    """The files of the integration tests that run the code of `path`, relative to the project `root`."""
    patterns = next((tests for beginning, tests in OF_CODE if path.startswith(beginning)), ())
    found = {file for pattern in patterns for file in (root / INTEGRATION).glob(pattern)}
    return [str(file.relative_to(root)) for file in sorted(found)]
