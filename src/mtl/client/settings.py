"""How a connection reaches its broker."""

from __future__ import annotations

from dataclasses import dataclass, field

from mtl.errors import OptionError
from mtl.limits import REQUEST_TIMEOUT_S, RETRY_DEADLINE_S

DEFAULT_ENDPOINT = "tcp://127.0.0.1:5975"
"""5975 is the port that the earliest implementation of RFC 11 bound."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What `mtl.connect` was told. Times are in seconds.

    `request_timeout` is for one attempt (a request, a connect, a bind), `retry_deadline` for all attempts together:
    when nobody answered for so long, `Unreachable` is raised. After `heartbeat` without a word from either end of a
    data flow the broker is pinged, and given up after three times as long without an answer (MTL-99 to 104); None is
    what the broker says of itself in the 202, or `limits.HEARTBEAT_S` where it says nothing; 0 is never. With
    `local_reads` packs of a broker on this machine are read from its files where that is possible (PROTOCOL.md 5.6).
    """

    endpoint: str = DEFAULT_ENDPOINT
    virtual_host: str | None = None
    profile: str = "log"
    request_timeout: float = REQUEST_TIMEOUT_S
    retry_deadline: float = RETRY_DEADLINE_S
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    heartbeat: float | None = None
    local_reads: bool = True

    def __post_init__(self) -> None:
        """Raises `OptionError` for what cannot work."""
        if "://" not in self.endpoint:
            raise OptionError(
                f"endpoint {self.endpoint!r} has no transport; write tcp://HOST:PORT or ipc://PATH"
            )
        if self.request_timeout <= 0 or self.retry_deadline <= 0:
            raise OptionError("request_timeout and retry_deadline have to be above 0 seconds")
        if self.heartbeat is not None and self.heartbeat < 0:
            raise OptionError("heartbeat has to be a number of seconds, 0 for none at all")
        if (self.user is None) != (self.password is None):
            raise OptionError("user and password go together")
