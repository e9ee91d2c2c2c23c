"""Writes bad bodies to the resource that `deadLetter` names: each once, with the coordinates of its source.

A task may run again, or twice at a time. All attempts at the same contents use one writer name, which the broker
remembers, and number the dead letters in the order of the source. A later attempt continues after the existing
letters (PROTOCOL.md 5.4). The name is derived from everything that decides which bodies are bad: range, schema,
format. A letter may be written again, but is never lost, in these cases: the range changes (a failed batch is
repeated with another minPartitions), the user changes, or the name was unused for a day and the broker forgot it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

import msgspec

from mtl.client.settings import Settings
from mtl.errors import Fenced, FieldError, Refused
from mtl.wire.control import UNKNOWN_RESOURCE
from mtl.wire.fields import Value, decode_table, encode_properties
from pyspark_mtl.connections import connection
from pyspark_mtl.limits import DEAD_LETTER_PATH, DEAD_LETTER_REASON, FENCED_DEAD_LETTERS
from pyspark_mtl.rows.bodies.shape import Shape
from pyspark_mtl.rows.typed import BadContent
from pyspark_mtl.source.offsets import OffsetRange

if TYPE_CHECKING:
    from mtl.client.writer import Writer

PREFIX = "dead-letter-"
"""Prefix of the properties with a dead letter's origin and reason, as in the broker's queues."""

PATH = f"{PREFIX}path"
"""The property with the resources before `dead-letter-resource`, as a list in JSON, of a letter that was bad again."""


def writer_name(contents: OffsetRange, shape: Shape) -> str:
    """The writer name of all attempts at these contents: text of 40 characters."""
    text = (
        contents.resource,
        contents.incarnation,
        contents.first,
        contents.until,
        shape.options.format,
        shape.body.to_string(),
    )
    return f"letters-{hashlib.blake2b(repr(text).encode(), digest_size=16).hexdigest()}"


def properties(bad: BadContent, contents: OffsetRange) -> dict[str, Value]:
    """The content's own properties, its coordinates and its path; only these two if all exceed a table."""
    origin: dict[str, Value] = {
        f"{PREFIX}resource": contents.resource,
        f"{PREFIX}incarnation": contents.incarnation,
        f"{PREFIX}sequence": bad.sequence,
        f"{PREFIX}reason": bad.reason[:DEAD_LETTER_REASON],
    }
    own = decode_table(bad.properties) if bad.properties else {}
    if path := _path(own):
        origin[PATH] = msgspec.json.encode(path[-DEAD_LETTER_PATH:]).decode()
    both = {name: value for name, value in own.items() if not name.startswith(PREFIX)} | origin
    try:
        encode_properties(both)
    except FieldError:
        return origin
    return both


def _path(own: Mapping[str, Value]) -> list[str]:
    """The resources that a content was in before, as a bad body or a dead letter: the first of them first."""
    origin, before = own.get(f"{PREFIX}resource"), own.get(PATH, "[]")
    if not isinstance(origin, str):
        return []
    try:
        return [*msgspec.json.decode(str(before), type=list[str]), origin]
    except msgspec.DecodeError:  # other programs may write such properties
        return [origin]


class DeadLetterWriter:
    """Writes the dead letters of one task; a context manager. Writes nothing without the option `deadLetter`.

    Raises Fenced if other attempts at the same contents take over the writer FENCED_DEAD_LETTERS times.
    """

    def __init__(self, connect: Settings, contents: OffsetRange, shape: Shape) -> None:
        self._connect = connect
        self._contents = contents
        self._name = writer_name(contents, shape)
        self._target = shape.options.dead_letter
        self._writer: Writer | None = None
        self._count = 0

    def write(self, letters: Sequence[BadContent]) -> None:
        """Append these letters, except those that another attempt has written, and wait until they are durable.

        A bad body that came from the target, by dead letters of this read or of others, is in it already. It would go
        round without end, through reads of which each reads the dead letters of the one before.
        """
        letters = [letter for letter in letters if not self._came_from_target(letter)]
        if self._target is None or not letters:
            return
        for left in reversed(range(FENCED_DEAD_LETTERS)):
            try:
                self._write(self._target, letters)
                break
            except Fenced:
                self._drop()
                if not left:
                    raise
        self._count += len(letters)

    def _came_from_target(self, letter: BadContent) -> bool:
        return bool(letter.properties) and self._target in _path(decode_table(letter.properties or b""))

    def _write(self, target: str, letters: Sequence[BadContent]) -> None:
        writer = self._open(target)
        had = writer.last.get(target, 0)
        for number, letter in enumerate(letters, self._count + 1):
            if number > had:
                writer.send(letter.body, properties(letter, self._contents))
        writer.flush()

    def _open(self, target: str) -> Writer:
        if self._writer is None:
            try:
                self._writer = self._lease(target)
            except Refused as refused:
                if refused.reason != UNKNOWN_RESOURCE:
                    raise
                connection(self._connect).create_resource(target, exist_ok=True)
                self._writer = self._lease(target)
        return self._writer

    def _lease(self, target: str) -> Writer:
        broker = connection(self._connect)
        return broker.writer(target, name=broker.own_name(self._name))

    def _drop(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.abandon()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Abandon the writer: written letters are durable, the next attempt writes the rest."""
        self._drop()
