"""`mtl conformance`: check a server, or a client, against RFC 11."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated

import typer

from mtl.cli import interrupts
from mtl.cli.common import Json, named_endpoint, out, print_json, settings
from mtl.client.settings import Settings
from mtl.conformance.client import exit_finding, findings
from mtl.conformance.peer import Target
from mtl.conformance.report import CheckResult, CheckVerdict, Failed, NotSeen
from mtl.conformance.server import check_server, choose_profile, fetch_profiles
from mtl.conformance.twin import Twin
from mtl.errors import OptionError

END_S = 5.0
"""Seconds between SIGTERM to a client that does not end by itself, and SIGKILL."""


def conformance(
    context: typer.Context,
    endpoint: Annotated[
        str | None,
        typer.Argument(
            help="The server's control endpoint. Required, because the checks create and write to resources.",
            show_default=False,
        ),
    ] = None,
    command: Annotated[
        list[str] | None,
        typer.Argument(help="With --client, after --: the client, which finds the endpoint in MTL_ENDPOINT."),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            help="The profile to check: test, log, queue, or another.  [default: test]", show_default=False
        ),
    ] = None,
    resource: Annotated[
        str | None,
        typer.Option(
            help="An existing resource, if the server cannot create any.  [default: new ones]",
            show_default=False,
        ),
    ] = None,
    client: Annotated[bool, typer.Option("--client", help="Check a client instead.")] = False,
    listen: Annotated[
        str, typer.Option(help="With --client: the endpoint to serve at.")
    ] = "tcp://127.0.0.1:*",
    seconds: Annotated[float, typer.Option(help="With --client: the longest time to serve it.")] = 60.0,
    frames: Annotated[
        bool, typer.Option("--frames", help="Show the frames of met requirements, too.")
    ] = False,
    json: Json = False,
) -> None:
    """Check a server, or with --client a client, against RFC 11. Shows requirement, verdict and frames. Exit code 1 if
    a MUST is violated.

    To check a client, this command acts as its server: run the client against the endpoint that is printed, or give its
    command after `--`, which has to end with exit code 0. Requirements that the client did not exercise are "not seen".
    """
    if client:
        words = [*([endpoint] if endpoint is not None else []), *(command or [])]
        results: Iterable[CheckResult] = _check_client(listen, words, seconds, json=json)
    else:
        if not named_endpoint(context, endpoint):
            raise OptionError(
                "name the server: mtl conformance ENDPOINT. There is no default, because the checks create resources "
                "and write to them"
            )
        results = _check_server(settings(context, endpoint), profile, resource)
    violations = _print_results(results, all_frames=frames, json=json)
    if violations:
        raise typer.Exit(1)


def _check_server(server: Settings, profile: str | None, resource: str | None) -> Iterator[CheckResult]:
    credentials = server.credentials()
    target = Target(
        server.endpoint,
        profile or "",
        server.virtual_host,
        resource,
        credentials.user,
        credentials.password,
        patience_s=server.retry_deadline / 2,
    )
    try:
        profiles = fetch_profiles(target)
    except (Failed, NotSeen) as error:
        raise OptionError(f"{target.endpoint} cannot be checked: {error}") from error
    chosen = profile or choose_profile(profiles)
    return check_server(replace(target, profile=chosen))


def _check_client(listen: str, command: list[str], seconds: float, *, json: bool) -> list[CheckResult]:
    ended: list[CheckResult] = []
    with Twin(listen) as twin:
        if not json:
            out.print(f"serving at {twin.endpoint}", markup=False)
        if command:
            ended.append(exit_finding(_run(command, twin.endpoint, seconds)))
        else:
            _wait(seconds)
        time.sleep(0.2)  # its last messages may still be in transit
    return findings(twin) + ended


def _run(command: list[str], endpoint: str, seconds: float) -> int | None:
    """The exit code of a client; None if it is still there after the time, and had to be ended."""
    environment = {**os.environ, "MTL_ENDPOINT": endpoint}
    try:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    except OSError as error:
        raise OptionError(f"the client cannot be started: {error}") from error
    with process:
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
        return None


def _wait(seconds: float) -> None:
    """Sleep; Ctrl-C ends it early."""
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        interrupts.go_on()


def _print_results(results: Iterable[CheckResult], *, all_frames: bool, json: bool) -> int:
    """Show each finding, and return the number of violations."""
    counts = dict.fromkeys(CheckVerdict, 0)
    violations = 0
    for result in results:
        counts[result.verdict] += 1
        violations += result.is_violation
        if json:
            print_json(vars(result))
            continue
        reason = f": {result.reason}" if result.reason else ""
        out.print(
            f"{result.requirement:8} {result.level:6} {result.verdict:8} {result.text}{reason}",
            markup=False,
            soft_wrap=True,
        )
        if all_frames or result.verdict is CheckVerdict.FAILED:
            for frame in result.frames:
                out.print(f"    {frame}", markup=False, soft_wrap=True)
    if not json:
        totals = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        out.print(f"{totals}; MUSTs violated: {violations}", markup=False)
    return violations
