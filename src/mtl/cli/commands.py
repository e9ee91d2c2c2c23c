"""The group of all commands: its usage errors do not repeat arguments, since one of them may be a password."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

UsageError: Any = typer.BadParameter.__bases__[0]
"""typer has its own copy of click in newer versions and names only some of its errors."""

_EXTRA = "Got unexpected extra argument"


class Commands(TyperGroup):
    """Commands, at any depth."""

    def invoke(self, ctx: Any) -> Any:
        """Carry a command out. An error about arguments that are too many does not show them."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            if error.message.startswith(_EXTRA):
                error.message = (
                    "Got more arguments than the command has. They are not shown, in case one is a password: give it "
                    "by --password-file or --password-env, or type it when asked."
                )
            raise
