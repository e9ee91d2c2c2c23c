"""`mtl`: the broker, and what can be done with it from a shell."""

from __future__ import annotations

import sys

from mtl.errors import MtlError

try:
    import typer
except ImportError:
    sys.exit("the command line needs typer and rich: pip install 'pyspark-mtl[cli]'")

from mtl.cli import broker

app = typer.Typer(
    name="mtl",
    help="A durable broker for 11/MTL, and what there is in it.",
    no_args_is_help=True,
    add_completion=False,
)
app.command("broker")(broker.broker)


@app.callback()
def common() -> None:
    """Keeps `mtl` a group of commands, also while it has only one."""


def main() -> None:
    """The entry point: an error of ours is one line on standard error and exit code 1."""
    try:
        app()
    except MtlError as e:
        sys.stderr.write(f"mtl: {e}\n")
        sys.exit(1)


if __name__ == "__main__":
    main()
