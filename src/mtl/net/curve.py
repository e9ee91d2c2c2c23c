"""CURVE keys (RFC 26/CurveZMQ): made, kept in files, and put on sockets.

A file is a certificate as CZMQ's zcert writes it: sections of `name = "value"`, keys in Z85 (RFC 32). The public file
has the public key, the private one both.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import zmq

from mtl.errors import OptionError
from mtl.net.endpoint import Curve

_Z85: Final = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")
"""32 octets as RFC 32 writes them."""

_MEMBER: Final = re.compile(r'^\s*(public-key|secret-key)\s*=\s*"([^"]*)"\s*$', re.MULTILINE)

PRIVATE_SUFFIX, PUBLIC_SUFFIX = ".key", ".pub"


def make_keys() -> tuple[bytes, bytes]:
    """A new key pair: public and secret, in Z85."""
    public, secret = zmq.curve_keypair()
    return public, secret


def write_keys(name: Path) -> tuple[Path, Path]:
    """Make a pair and write NAME.key, readable by its owner only, and NAME.pub. Returns their paths, private one first.

    Raises `OptionError` when one of the files exists or cannot be written.
    """
    private, public_file = (name.with_name(name.name + suffix) for suffix in (PRIVATE_SUFFIX, PUBLIC_SUFFIX))
    for path in (private, public_file):
        if path.exists():
            raise OptionError(f"{path} already exists and is not overwritten; choose another name")
    public, secret = make_keys()
    _write(private, 0o600, _certificate("keep this file to yourself", public, secret))
    _write(public_file, 0o644, _certificate("this file is public", public, None))
    return private, public_file


def _certificate(comment: str, public: bytes, secret: bytes | None) -> str:
    lines = [f"# A CURVE key of MTL: {comment}", "curve", f'    public-key = "{public.decode()}"']
    if secret is not None:
        lines.append(f'    secret-key = "{secret.decode()}"')
    return "\n".join(lines) + "\n"


def _write(path: Path, mode: int, text: str) -> None:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(file, "w", encoding="ascii") as opened:
            opened.write(text)
    except FileExistsError as error:
        raise OptionError(f"{path} already exists and is not overwritten; choose another name") from error
    except OSError as error:
        raise OptionError(f"cannot write {path}: {error.strerror}") from error


def read_public(where: str) -> bytes:
    """A public key: 40 characters of Z85, or the path of a file with one. Raises `OptionError` for anything else."""
    return where.encode() if _Z85.fullmatch(where) else _read(Path(where), "public-key")["public-key"]


def read_pair(path: Path) -> tuple[bytes, bytes]:
    """The public and the secret key of a private file. Raises `OptionError`, also for a file that others can read; its
    message never shows a key.
    """
    keys = _read(path, "public-key", "secret-key")
    _check_private(path)
    public, secret = keys["public-key"], keys["secret-key"]
    if zmq.curve_public(secret) != public:
        raise OptionError(f"the two keys in {path} are not a pair; make a new pair with `mtl keys`")
    return public, secret


def _check_private(path: Path) -> None:
    """PostgreSQL's rule: only the owner may read the file, or a group if root owns it (a mounted secret)."""
    status = path.stat()
    others = 0o027 if status.st_uid == 0 != os.geteuid() else 0o077
    if status.st_mode & others:
        raise OptionError(
            f"others can read the private CURVE key in {path} (mode {status.st_mode & 0o777:o}): chmod 600 {path}, "
            "and make a new pair with `mtl keys` if another user may have read it"
        )


def _read(path: Path, *names: str) -> dict[str, bytes]:
    try:
        keys = dict(_MEMBER.findall(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise OptionError(f"cannot read the CURVE key in {path}: {reason}") from error
    for name in names:
        if not _Z85.fullmatch(keys.get(name, "")):
            hint = f" ({PRIVATE_SUFFIX} is the private file)" if name == "secret-key" else ""
            raise OptionError(f"{path} has no {name}{hint}; `mtl keys` makes such files")
    return {name: keys[name].encode() for name in names}


def client_keys(server: str | os.PathLike[str] | None, own: str | os.PathLike[str] | None) -> Curve | None:
    """The keys of one connection: the server's public key (in Z85 or a file) and the client's private file. Without
    that file a pair is generated. None without CURVE. Raises `OptionError`.
    """
    if server is None:
        if own is not None:
            raise OptionError("the client's key file needs the server's public key, or its file")
        return None
    public, secret = read_pair(Path(own)) if own is not None else make_keys()
    return Curve(read_public(os.fspath(server)), public, secret)


def as_client(socket: zmq.Socket[Any], keys: Curve) -> None:
    """Make a socket that is not connected yet use CURVE, with the broker that has this key only."""
    socket.curve_serverkey = keys.server
    socket.curve_publickey = keys.public
    socket.curve_secretkey = keys.secret


def as_server(socket: zmq.Socket[bytes], secret: bytes) -> None:
    """Make a socket that is not bound yet use CURVE only."""
    socket.curve_server = True
    socket.curve_secretkey = secret
