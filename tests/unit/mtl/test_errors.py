"""Errors survive the way to another process, and copies: a generated test over all exception classes of the project."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import mtl
import pyspark_mtl
from mtl.errors import DataLoss, Fenced, MtlError, Unreachable


def modules(package: Any) -> Iterator[Any]:
    """All modules below a package; some of its folders have no `__init__.py`."""
    top = Path(package.__file__).parent
    for file in sorted(top.rglob("*.py")):
        parts = file.relative_to(top.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if not name.endswith("__main__"):
            yield importlib.import_module(name)


CLASSES = sorted(
    {
        kind
        for package in (mtl, pyspark_mtl)
        for module in modules(package)
        for kind in vars(module).values()
        if inspect.isclass(kind)
        and issubclass(kind, BaseException)
        and kind.__module__.startswith(("mtl.", "pyspark_mtl."))
    },
    key=lambda kind: f"{kind.__module__}.{kind.__qualname__}",
)


def pickled(protocol: int, error: BaseException) -> Any:
    return pickle.loads(pickle.dumps(error, protocol))


WAYS: dict[str, Callable[[Any], Any]] = {
    **{f"pickle-{protocol}": partial(pickled, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)},
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def an_error(kind: type[BaseException]) -> BaseException:
    """An error of the class, with a value for each parameter of its constructor."""
    arguments: list[Any] = []
    named: dict[str, Any] = {}
    for name, parameter in inspect.signature(kind.__init__).parameters.items():
        value: Any = next(
            (
                x
                for word, x in (("bool", True), ("int", 7), ("float", 1.5))
                if word in str(parameter.annotation)
            ),
            f"the {name}",
        )
        if name == "self":
            continue
        if parameter.kind is parameter.VAR_KEYWORD:
            named |= {} if "args" in arguments else {"extra": ["a", {"b": 1}]}
        elif parameter.kind is parameter.KEYWORD_ONLY:
            named[name] = value
        elif parameter.kind is parameter.VAR_POSITIONAL:
            arguments.append(name)
        elif name == "command":
            arguments.append(None)
        else:
            arguments.append(value)
    return kind(*arguments, **named)


def state(error: BaseException) -> tuple[object, ...]:
    return type(error), str(error), error.args, vars(error)


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_error_survives(kind: type[BaseException]) -> None:
    error = an_error(kind)
    error.add_note("a note")
    for name, way in WAYS.items():
        assert state(way(error)) == state(error), name


def test_the_list_of_classes_is_that_of_the_tree() -> None:
    below = {MtlError}
    while (more := {sub for kind in below for sub in kind.__subclasses__()}) - below:
        below |= more
    assert {kind for kind in below if not kind.__module__.startswith("tests")} <= set(CLASSES)


def test_a_fenced_error_keeps_its_words() -> None:
    fenced = Fenced("another holder took over", holder="x")
    again = pickle.loads(pickle.dumps(fenced))
    assert (again.status, again.reason, again.members) == (409, "fenced", {"holder": "x"})
    assert str(again) == "409 fenced: another holder took over"


def test_a_loss_keeps_its_range() -> None:
    loss = pickle.loads(pickle.dumps(DataLoss("orders", 3, 9, resume=3)))
    assert (loss.resource, loss.first, loss.end, loss.count, loss.resume) == ("orders", 3, 9, 6, 3)


def test_the_seconds_and_the_endpoint_of_unreachable_are_kept() -> None:
    again = copy.deepcopy(Unreachable("tcp://127.0.0.1:1", 1.5, "waiting"))
    assert (again.endpoint, again.waited) == ("tcp://127.0.0.1:1", 1.5)
