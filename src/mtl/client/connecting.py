"""`mtl.connect` and `mtl.aio.connect` have the signature of this function, which makes the settings of a
connection.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from mtl.client.arguments import checked
from mtl.client.settings import Settings
from mtl.limits import DEFAULT_ENDPOINT, REQUEST_TIMEOUT_S, RETRY_DEADLINE_S

P = ParamSpec("P")
T = TypeVar("T")


@checked
def connect(
    endpoint: str = DEFAULT_ENDPOINT,
    *,
    virtual_host: str | None = None,
    profile: str = "log",
    request_timeout: float = REQUEST_TIMEOUT_S,
    retry_deadline: float = RETRY_DEADLINE_S,
    user: str | None = None,
    password: str | None = None,
    password_file: str | os.PathLike[str] | None = None,
    password_env: str | None = None,
    sasl_mechanism: str | None = None,
    curve_server_key: str | os.PathLike[str] | None = None,
    curve_key_file: str | os.PathLike[str] | None = None,
    heartbeat: float | None = None,
    local_reads: bool = True,
    local_writes: bool = True,
    acting_as: str | None = None,
) -> Settings:
    """Connect to the broker at `endpoint`; use the result as a context manager, or close it.

    `request_timeout` (seconds) bounds one attempt, `retry_deadline` all attempts. `heartbeat` is the silence, in
    seconds, after which readers and writers ping the broker (default: the broker's setting; 0: never). With
    `local_reads` packs of a broker on this machine are read from its files if this process has the right; with
    `local_writes` packs for it are written to memory that it shares with this process.

    `user` authenticates by a password: `password`, the first line of `password_file`, or the environment variable
    `password_env`. `sasl_mechanism` is the only mechanism to use (default: the strongest that client and broker
    support; PLAIN on an unencrypted tcp connection only if it is named here). `curve_server_key`, the broker's public
    key (40 characters of Z85) or a file with it, turns encryption on. `curve_key_file` is a file with a private key, by
    which the broker may authenticate the client without a password (default: a new key for this connection).
    `acting_as` is another user, whose rights the connection has instead of those of `user` (`mtl grant USER --act-as`).

    Raises `Unreachable` if there is no answer until the deadline, `Refused` if the login fails or the broker has no
    such virtual host or profile, `OptionError` for options that contradict each other or files that cannot be read.
    """
    return Settings(
        endpoint,
        virtual_host,
        profile,
        request_timeout,
        retry_deadline,
        user,
        password,
        _text(password_file),
        password_env,
        sasl_mechanism,
        _text(curve_server_key),
        _text(curve_key_file),
        heartbeat,
        local_reads,
        local_writes,
        acting_as,
    )


def _text(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)


def opens(settings: Callable[P, Settings], factory: Callable[[Settings], T]) -> Callable[P, T]:
    """A function with the signature of `settings` that opens a connection with these settings."""

    @wraps(settings)
    def connect(*args: P.args, **kwargs: P.kwargs) -> T:
        return factory(settings(*args, **kwargs))

    return connect
