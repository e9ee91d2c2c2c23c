"""The group of all commands: its usage errors do not repeat arguments, since one of them may be a password."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

UsageError: Any = typer.BadParameter.__bases__[0]
"""Newer versions of typer contain their own copy of click, and export only some of its errors."""

_EXTRA = "Got unexpected extra argument"


class Commands(TyperGroup):
    """Commands, at any depth."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command. An error about too many arguments does not show them."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            if error.message.startswith(_EXTRA):
                error.message = (
                    "Got too many arguments. They are not shown, in case one is a password: give a password by "
                    "--password-file or --password-env, or type it at the prompt."
                )
            raise
