"""Makes `mtl.connect` and `mtl.aio.connect` of the settings of a connection: their fields are its arguments."""

from __future__ import annotations

from collections.abc import Callable
from inspect import Signature, signature
from typing import ParamSpec, TypeVar

from mtl.client.arguments import check_arguments
from mtl.client.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")


def opens(settings: Callable[P, Settings], factory: Callable[[Settings], T]) -> Callable[P, T]:
    """A function with the arguments and the docstring of `settings` that opens a connection with these settings."""

    def connect(*args: P.args, **kwargs: P.kwargs) -> T:
        check_arguments("connect", settings, *args, **kwargs)
        return factory(settings(*args, **kwargs))

    connect.__doc__ = settings.__doc__
    connect.__signature__ = signature(settings).replace(  # type: ignore[attr-defined]  # help() shows it
        return_annotation=Signature.empty
    )
    return connect
