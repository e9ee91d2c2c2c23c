from __future__ import annotations

import subprocess
import sys

import pytest

import mtl


def test_settings_are_loaded_without_zmq() -> None:
    code = "import sys, mtl.client.settings; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "zmq" not in loaded.stdout.split()


@pytest.mark.parametrize("name", sorted(set(mtl.__all__) - {"aio", "__version__"}))
def test_every_public_name_is_found(name: str) -> None:
    assert getattr(mtl, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = mtl.nothing
