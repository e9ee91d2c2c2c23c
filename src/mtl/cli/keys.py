"""`mtl keys`: a pair of CURVE keys."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def keys(
    name: Annotated[Path, typer.Argument(help="Write NAME.key (private) and NAME.pub (public).")],
) -> None:
    """Make a pair of CURVE keys for a broker or a client. Nothing is overwritten; only you can read NAME.key."""
    from mtl.net.curve import read_public, write_keys  # noqa: PLC0415 the other commands need not load it

    private, public = write_keys(name)
    print(f"private key: {private}")
    print(f"public key:  {public} ({read_public(str(public)).decode()})")
