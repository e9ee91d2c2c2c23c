"""`mtl recover`: list the recoverable parts of a damaged data directory, and recover them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mtl.cli.common import Json, out, print_json
from mtl.errors import OptionError
from mtl.storage.recovering import Item, Recovery


def recover(
    data: Annotated[
        Path, typer.Argument(help="The data directory of a broker that is stopped.", metavar="DIR")
    ],
    name: Annotated[
        str | None, typer.Argument(help="Bring back this log of lost+found.", metavar="[NAME]")
    ] = None,
    new_name: Annotated[
        str | None, typer.Option("--as", help="Bring it back as the resource of this name.")
    ] = None,
    virtual_host: Annotated[str | None, typer.Option(help="Bring it back into this virtual host.")] = None,
    manifests: Annotated[
        bool, typer.Option("--manifests", help="Make the manifests of logs that are missing or damaged.")
    ] = False,
    accept_records: Annotated[
        bool,
        typer.Option(
            "--accept-records",
            help="Accept the existing records as complete: an older broker.db, or the rest of a damaged one. "
            "Groups may then read contents again, and commits without a record may happen again.",
        ),
    ] = False,
    forget: Annotated[
        list[str] | None,
        typer.Option(help="Forget this damaged record ('KIND KEY', as it is listed). May be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """List what can be recovered in a data directory, or recover it. Nothing is removed."""
    if name is None and (new_name is not None or virtual_host is not None):
        raise OptionError("--as and --virtual-host are for a NAME that is brought back")
    with Recovery(data) as recovery:
        done = recovery.accept() if accept_records else []
        done += [recovery.forget(about) for about in forget or ()]
        done += recovery.manifests() if manifests else []
        done += [recovery.restore_log(name, new_name, virtual_host)] if name is not None else []
        if not (accept_records or forget or manifests or name):
            _list(data, recovery.items(), json=json)
    for text in done:
        if json:
            print_json({"done": text})
        else:
            out.print(text, markup=False, soft_wrap=True)


def _list(data: Path, items: list[Item], *, json: bool) -> None:
    for item in items:
        if json:
            print_json(item._asdict())
            continue
        out.print(f"{item.what}: {item.about}", markup=False, soft_wrap=True)
        if item.option:
            out.print(f"    mtl recover {data} {item.option}", markup=False, soft_wrap=True)
    if not items and not json:
        out.print("nothing to recover", markup=False)
