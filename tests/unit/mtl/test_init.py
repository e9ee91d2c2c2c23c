from __future__ import annotations

import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import mtl
from mtl.doors.mbws import client as mbws
from mtl.doors.mc0 import client as mc0
from mtl.doors.micromessage import client as micromessage
from mtl.doors.reactive import client as reactive

FEW = 3
"""Parameters with a default that a sentence can explain."""


def public_functions() -> Iterator[tuple[str, Callable[..., object]]]:
    """The functions and methods of `mtl`, `mtl.aio` and the clients of the doors, by name."""
    for module in (mtl, mtl.aio, mbws, mc0, micromessage, reactive):
        for name in getattr(module, "__all__", ["connect"]):
            thing: Any = getattr(module, name)
            if isinstance(thing, type):
                for method, function in inspect.getmembers(thing, callable):
                    if not method.startswith("_"):
                        yield f"{module.__name__}.{name}.{method}", function
            elif callable(thing):
                yield f"{module.__name__}.{name}", thing


FUNCTIONS = dict(public_functions())


def optional(function: Callable[..., object]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [x.name for x in parameters if x.default is not inspect.Parameter.empty]


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


@pytest.mark.parametrize("name", [name for name, x in FUNCTIONS.items() if len(optional(x)) > FEW])
def test_a_function_with_many_parameters_lists_them(name: str) -> None:
    text = inspect.getdoc(FUNCTIONS[name]) or ""
    items = " ".join(line for line in text.splitlines() if line.startswith(("- `", "  ")))
    listed = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"- ((?:`\w+`(?:, )?)+):", items))))
    assert set(optional(FUNCTIONS[name])) - listed == set()


def test_help_shows_what_a_request_returns() -> None:
    assert inspect.signature(mtl.Connection.describe).return_annotation == "Described"
    assert inspect.signature(mtl.aio.Connection.stage_commit).return_annotation == "control.Committed"
