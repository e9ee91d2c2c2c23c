"""The settings of a connection: endpoint, timeouts, credentials. The only list of the arguments of `connect`."""

from __future__ import annotations

import os
import re
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path

from mtl.errors import OptionError
from mtl.limits import DEFAULT_ENDPOINT, REQUEST_TIMEOUT_S, RETRY_DEADLINE_S
from mtl.net.private import check_password_file
from mtl.protocol.sasl.client import Credentials
from mtl.protocol.sasl.mechanisms import BY_STRENGTH, EXTERNAL, WITH_PASSWORD

_ENDPOINT = re.compile(r"(?:tcp://[^\s/]+:\d{1,5}|ipc://\S+)")


@dataclass(frozen=True, slots=True)
class Settings:
    """The arguments of `mtl.connect`, which connects to the broker at `endpoint`: use the result as a context manager,
    or close it. The options of the command line, of a door's table and of a Spark source are such settings, too.

        with mtl.connect("tcp://broker:5975", user="etl", password_file="/run/secrets/etl") as connection:
            print(connection.list_resources())

    - `endpoint`: tcp://HOST:PORT or ipc://PATH. Default: tcp://127.0.0.1:5975.
    - `virtual_host`: the name space of resources. Default: the broker's first.
    - `profile`: `log` (durable and replayable), `queue` (competing consumers) or `test` (the RFC only). Default: `log`.
    - `request_timeout`: the bound of one attempt (a request, a connect, a bind), in seconds. Default: 5.
    - `retry_deadline`: the bound of all attempts together, in seconds. Default: 30.
    - `user`: the user who logs in, with a password or a CURVE key. Default: anonymous.
    - `password`, `password_file`, `password_env`: one of them: the password, a file whose first line it is, or the
      environment variable that has it. File and variable are read at every login, so that a changed password is found.
    - `sasl_mechanism`: the only mechanism to use. Default: the strongest that client and broker support; PLAIN on an
      unencrypted tcp connection only if it is named here.
    - `curve_server_key`: the broker's public key (40 characters of Z85) or a file with it. Default: no encryption.
    - `curve_key_file`: a file with a private key, by which the broker may authenticate the client without a password.
      Default: a new key for this connection.
    - `heartbeat`: the silence in seconds after which readers and writers ping the broker; after three times as long
      without an answer they connect again. 0: never. Default: the broker's setting.
    - `local_reads`: whether packs of a broker on this machine are read from its files, if this process has the right
      (PROTOCOL.md 5.6). Default: yes.
    - `acting_as`: another user, whose rights the connection has instead of those of `user` (`mtl grant USER --act-as`).
      Default: none.

    Raises `OptionError` for options that contradict each other or files that cannot be read. `connect` raises
    `Unreachable` if there is no answer until the deadline, and `Refused` if the login fails or the broker has no such
    virtual host or profile.
    """

    endpoint: str = DEFAULT_ENDPOINT
    _: KW_ONLY
    virtual_host: str | None = None
    profile: str = "log"
    request_timeout: float = REQUEST_TIMEOUT_S
    retry_deadline: float = RETRY_DEADLINE_S
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: str | os.PathLike[str] | None = None
    password_env: str | None = None
    sasl_mechanism: str | None = None
    curve_server_key: str | os.PathLike[str] | None = None
    curve_key_file: str | os.PathLike[str] | None = None
    heartbeat: float | None = None
    local_reads: bool = True
    acting_as: str | None = None

    def __post_init__(self) -> None:
        """Raises `OptionError` for invalid or contradicting options."""
        if not _ENDPOINT.fullmatch(self.endpoint):
            raise OptionError(
                "endpoint is not tcp://HOST:PORT or ipc://PATH; it is not shown, because it may be a secret"
            )
        if self.request_timeout <= 0 or self.retry_deadline <= 0:
            raise OptionError("request_timeout and retry_deadline have to be above 0 seconds")
        if self.heartbeat is not None and self.heartbeat < 0:
            raise OptionError("heartbeat has to be a number of seconds from 0; 0 means no Pings")
        self._check_login()

    def _check_login(self) -> None:
        passwords = [x for x in (self.password, self.password_file, self.password_env) if x is not None]
        if len(passwords) > 1:
            raise OptionError(
                "password, password_file and password_env contradict each other; give one of them"
            )
        mechanism = self.sasl_mechanism.upper() if self.sasl_mechanism is not None else None
        if mechanism not in {None, *BY_STRENGTH}:
            raise OptionError(
                f"sasl_mechanism is none of {', '.join(BY_STRENGTH)}; it is not shown, because it may be a secret"
            )
        if passwords and self.user is None:
            raise OptionError("user and password go together; there is no user")
        own_key = self.curve_key_file is not None
        if own_key and self.curve_server_key is None:
            raise OptionError("curve_key_file needs curve_server_key: the broker's public key, or its file")
        if self.user is not None and not passwords and not own_key:
            raise OptionError(
                "user and password go together; there is no password (and no CURVE key instead)"
            )
        if mechanism in WITH_PASSWORD and not passwords:
            raise OptionError(f"sasl_mechanism {mechanism} needs user and password")
        if mechanism == EXTERNAL and not own_key:
            raise OptionError("sasl_mechanism EXTERNAL needs curve_key_file: the key authenticates the user")

    def credentials(self) -> Credentials:
        """The credentials for a login. Raises `OptionError` if the password cannot be read."""
        return Credentials(
            self.user,
            self._password(),
            self.sasl_mechanism,
            key=self.curve_key_file is not None,
            clear=self.curve_server_key is None and self.endpoint.startswith("tcp://"),
            acting_as=self.acting_as,
        )

    def second_login(self) -> tuple[Credentials, str] | None:
        """A further log-in on the same session: its credentials, and the address of the peer that they come from. Only
        a door has one (`mtl.doors.logins`).
        """
        return None

    def _password(self) -> str | None:
        if self.password_env is not None:
            return password_in(self.password_env)
        if self.password_file is not None:
            return read_password(Path(self.password_file))
        return self.password


def password_in(variable: str) -> str:
    """The value of an environment variable. Raises `OptionError` if it is missing or empty. The error shows the name
    only if the variable exists, since a user may have given the password instead of the name.
    """
    password = os.environ.get(variable)
    if password is None:
        raise OptionError(
            "the environment variable for the password does not exist; its name is not shown, because it may be the "
            "password itself"
        )
    if not password:
        raise OptionError(f"the environment variable {variable} is empty; it has to be the password")
    return password


def read_password(path: Path) -> str:
    """The first line of a file. Raises `OptionError` if it is missing or empty. The error shows the path only if its
    directory exists, since a user may have given the password instead of the path.
    """
    is_path = path.name != str(path) and os.path.isdir(path.parent)  # noqa: PTH112 Path's raises for a long name
    displayed = str(path) if is_path else "the given file"
    try:
        check_password_file(path, displayed)
        password = path.read_text(encoding="utf-8").partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise OptionError(f"cannot read the password in {displayed}: {reason}") from None
    if not password:
        raise OptionError(f"the first line of {displayed} is empty; it has to be the password")
    return password
