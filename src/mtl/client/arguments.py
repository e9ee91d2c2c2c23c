"""Checks the arguments of public functions by their annotations, so that a wrong one is a TypeError to its caller.

Without the check it would be an exception in the loop, or a value that the peer gets. Elements of containers are
checked with the request that they are sent in (`mtl.wire.control.check_request`).
"""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Callable
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from typing import Any, ParamSpec, TypeVar

from mtl.errors import OptionError

P = ParamSpec("P")
T = TypeVar("T")


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """`function` with a check of its arguments. Raises TypeError for another type than annotated, `OptionError` (a
    ValueError) for a word that is not one of the known ones, and for a number that is not finite.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        check_arguments(function.__name__, function, *args, **kwargs)
        return function(*args, **kwargs)

    return call


def check_arguments(named: str, function: Callable[P, object], /, *args: P.args, **kwargs: P.kwargs) -> None:
    """Raises as `checked` for the arguments of a call of `function`, which errors call `named`."""
    described, hints = _described(function)
    for name, value in described.bind(*args, **kwargs).arguments.items():
        if name in hints:
            check_argument(f"{named}: {name}", value, hints[name])


def check_argument(name: str, value: object, hint: Any) -> None:
    """Raises as `checked` for a value that is not of the annotated type."""
    choices = _choices(hint)
    if isinstance(value, float) and not math.isfinite(value):
        raise OptionError(f"{name} is {value}; it has to be a finite number")
    if any(_fits(value, choice) for choice in choices):
        return
    words = [
        word for choice in choices if typing.get_origin(choice) is typing.Literal for word in choice.__args__
    ]
    if isinstance(value, str) and words and str not in choices:
        raise OptionError(f"{name} is {value[:80]!r}; it has to be {' or '.join(map(repr, words))}")
    expected = " or ".join(dict.fromkeys(_named(choice) for choice in choices))
    raise TypeError(f"{name} has to be {expected}, not {type(value).__name__}: {value!r:.80}")


@cache
def _described(function: Callable[..., object]) -> tuple[Signature, dict[str, Any]]:
    described = signature(function)
    hints = typing.get_type_hints(function)
    variable = {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
    single = {name for name, parameter in described.parameters.items() if parameter.kind not in variable}
    return described, {name: hint for name, hint in hints.items() if name in single}


def _choices(hint: Any) -> list[Any]:
    if typing.get_origin(hint) in {typing.Union, types.UnionType}:
        return [choice for part in hint.__args__ for choice in _choices(part)]
    return [hint]


def _fits(value: object, choice: Any) -> bool:
    if choice is Any:
        return True
    if choice is None:
        return value is None
    origin = typing.get_origin(choice) or choice
    if origin is typing.Literal:
        return isinstance(value, str) and value in choice.__args__
    if not isinstance(origin, type):
        return True
    if origin in {int, float}:  # True is an int to isinstance
        return isinstance(value, (int, origin)) and not isinstance(value, bool)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return origin in {bytes, bytearray, memoryview}
    return isinstance(value, origin)


def _named(choice: Any) -> str:
    if choice is None or choice is type(None):
        return "None"
    if typing.get_origin(choice) is typing.Literal:
        return " or ".join(map(repr, choice.__args__))
    return str(getattr(choice, "__name__", choice))
