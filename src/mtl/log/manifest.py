"""The manifest of a log: facts that its segments do not contain. Pure functions between values and bytes.

    manifest        two lines: a JSON object, and the crc32c of its octets in 8 hexadecimal digits
    version         of this format: 2
    owner           opaque octets of the log's creator, in base64: enough to make a lost record again
    earliest        contents below it were removed on purpose
    newest          base of the newest segment that may hold contents
    salt            that segment's salt, which distinguishes it from another log's; null: not known
    end             contents below it were durable when this was written
    epochs          [[first sequence, id], ...], ascending; see `Epoch`
    setbacks        [[first sequence, time in µs], ...], ascending: where stamps go back (stamps.py)

The file is replaced as a whole. Each member is durable before anything depends on it: `earliest` before segments are
removed, `newest` with its salt, an epoch and a setback before a content of theirs is acknowledged. `newest` and `end`
are lowered before contents are removed from the end, and `salt` is null before a segment replaces an empty one. So a
log whose files begin above `earliest`, or end before `newest` or `end`, has lost contents, and one with another salt
has a segment of another log.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from mtl.errors import Damaged, UnknownFormat
from mtl.log.chunk import checksum
from mtl.log.limits import LOG_EPOCHS
from mtl.log.stamps import Setbacks

VERSION = 2
MANIFEST = "manifest"
NEW_MANIFEST = "manifest.new"

_CRC = 9
"""Octets of the last line: 8 digits and the end of the line."""


class Epoch(NamedTuple):
    """The contents that one run of the broker appended to a log: from sequence `first` up to the next epoch's first.

    `id` is "<number>.<8 hexadecimal digits>": the number counts the log's epochs, the digits are the run's. Two copies
    of a log that diverged have different ids. An epoch without contents does not count.
    """

    first: int
    id: str


History = tuple[Epoch, ...]
"""A log's epochs, ascending."""


class Manifest(msgspec.Struct, frozen=True):
    """The members are described at the top of this module."""

    earliest: int
    newest: int
    end: int = 1
    owner: bytes = b""
    epochs: History = ()
    version: int = VERSION
    salt: int | None = None
    setbacks: Setbacks = ()


def with_epoch(history: History, epoch: Epoch) -> History:
    """`history` with another epoch. Left out are epochs that do not begin before it, since their contents were removed,
    and the oldest of more than LOG_EPOCHS.
    """
    return (*(known for known in history if known.first < epoch.first), epoch)[-LOG_EPOCHS:]


def run_id(history: History, run: str) -> str:
    """The id of the epoch that the run with the token `run` has in a log, begun or not."""
    number, _, last = (history[-1].id if history else "0.").partition(".")
    return f"{number}.{run}" if last == run else f"{int(number) + 1}.{run}"


def epoch_of(history: History, sequence: int) -> str | None:
    """The id of the epoch that a content belongs to; None when it is older than the history."""
    return next((epoch.id for epoch in reversed(history) if epoch.first <= sequence), None)


def encode_manifest(manifest: Manifest) -> bytes:
    data = msgspec.json.encode(manifest)
    return data + b"\n%08x\n" % checksum(data)


def decode_manifest(data: bytes, path: str) -> Manifest:
    """Damaged when the octets do not verify, UnknownFormat when they are of another format."""
    text, crc = data[: -_CRC - 1], data[-_CRC - 1 :]
    try:
        if crc != b"\n%08x\n" % checksum(text):
            raise unusable(path, "its checksum does not match")
        version = _VERSION_DECODER.decode(text).version
        if version != VERSION:
            raise UnknownFormat.of(path, version, VERSION)
        manifest = _DECODER.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise unusable(path, str(error)) from error
    if not _is_sound(manifest):
        raise unusable(path, "its numbers are out of order")
    return manifest


class _Version(msgspec.Struct):
    version: int


_VERSION_DECODER = msgspec.json.Decoder(_Version)
_DECODER = msgspec.json.Decoder(Manifest)
"""Made here, in one thread: logs are opened in several, and two that decode the same type for the first time end the
process (msgspec 0.22).
"""


def _is_sound(manifest: Manifest) -> bool:
    firsts = [epoch.first for epoch in manifest.epochs]
    numbers = [epoch.id.partition(".")[0] for epoch in manifest.epochs]
    set_back = [setback.first for setback in manifest.setbacks]
    return (
        manifest.earliest >= 1
        and manifest.newest >= 1
        and manifest.end >= 1
        and firsts == sorted(set(firsts))
        and set_back == sorted(set(set_back))
        and all(number.isascii() and number.isdigit() and len(number) < 20 for number in numbers)
    )


def unusable(path: str, reason: str) -> Damaged:
    """The error for a manifest that is missing or damaged."""
    return Damaged(
        f"{path}: the log's manifest cannot be used: {reason}. Stop the broker and run `mtl recover`: it makes a new "
        "one from the segments",
        file=path,
    )
