"""`mtl`: the command line of the broker and its tools."""

from __future__ import annotations

import sys
from typing import Any

from mtl import __version__
from mtl.errors import MtlError

try:
    import rich  # noqa: F401  the extra `cli` installs both
    import typer
except ImportError:
    sys.exit("the command line needs typer and rich: pip install 'pyspark-mtl[cli]'")

from typer.core import TyperGroup

from mtl.cli import (
    broker,
    checkpoint,
    common,
    conformance,
    cursors,
    door,
    interrupts,
    keys,
    publish,
    queues,
    recover,
    resource,
    stages,
    streams,
    tail,
    users,
    verify,
)
from mtl.wire.visible import printable

UsageError: Any = typer.BadParameter.__bases__[0]
"""Newer versions of typer contain their own copy of click, and export only some of its errors."""

_EXTRA = "Got unexpected extra argument"


class Commands(TyperGroup):
    """Commands, at any depth. A usage error does not show arguments, since one of them may be a password."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except UsageError as error:
            if error.message.startswith(_EXTRA):
                error.message = (
                    "Got too many arguments. They are not shown, because one may be a password: give a password by "
                    "--password-file or --password-env, or type it at the prompt."
                )
            raise


app = typer.Typer(name="mtl", cls=Commands, no_args_is_help=True, add_completion=False)
app.callback()(common.store_options)
app.command("broker")(broker.broker)
app.command("door")(door.door)
app.add_typer(resource.app, name="resource")
app.command("publish")(publish.publish)
app.command("tail")(tail.tail)
app.command("consume")(tail.consume)
app.add_typer(cursors.app, name="cursors")
app.add_typer(queues.app, name="queues")
app.add_typer(stages.app, name="stages")
app.command("verify")(verify.verify)
app.command("recover")(recover.recover)
app.command("checkpoint")(checkpoint.checkpoint)
app.command("conformance")(conformance.conformance)
app.add_typer(users.app, name="user")
app.command("grant")(users.grant)
app.command("revoke")(users.revoke)
app.command("keys")(keys.keys)


@app.command("version")
def version() -> None:
    """Print the version."""
    print(__version__)


def main() -> None:
    """The entry point: an MtlError is one line on standard error and exit code 1."""
    streams.prepare()
    interrupts.end_in_time()
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except MtlError as error:
        text = printable(str(error), keep="\n")
        sys.stderr.write(f"mtl: {text}\n")
        streams.abandon_output()
        sys.exit(1)
    except BrokenPipeError:
        # The reader of the output has ended (| head). Python would report an error in its last flush.
        streams.abandon_output()
        sys.exit(0)
    finally:
        interrupts.end_if_interrupted()


if __name__ == "__main__":
    main()
