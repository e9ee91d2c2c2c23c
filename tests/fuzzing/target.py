"""A fuzz target: a decoder, the check of its result, and initial inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from mtl.errors import Malformed

T = TypeVar("T")

FINDINGS = Path(__file__).parent / "findings"
"""Inputs that a target once failed for, `<target>/<name>`: replayed by the test suite, and seeds of every later run.
"""


@dataclass(frozen=True)
class Target:
    """`run` takes any octets and raises only for a defect of the decoder. `tokens` are words that mutation would
    rarely produce; `max_len` bounds inputs, in octets. `apart`: the decoder gives octets to C code that might end the
    process, so the test suite runs it in another one, too.
    """

    name: str
    run: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    tokens: tuple[bytes, ...] = ()
    max_len: int = 4096
    apart: bool = False

    def known(self) -> list[bytes]:
        """The seeds, and former findings."""
        found = sorted((FINDINGS / self.name).glob("*"))
        return [*self.seeds, *(path.read_bytes() for path in found)]


def codec(
    decode: Callable[[bytes], T],
    encode: Callable[[T], bytes] | None = None,
    error: type[Exception] | tuple[type[Exception], ...] = Malformed,
) -> Callable[[bytes], None]:
    """The `run` of a decoder: it returns a value that encodes again to an equal one, or raises `error`, nothing else.

    A NaN, which is not equal to itself, is compared as text.
    """

    def run(data: bytes) -> None:
        try:
            value = decode(data)
        except error as refused:
            check_refusal(refused)
            return
        if encode is not None:
            again = decode(encode(value))
            assert again == value or repr(again) == repr(value), f"{value!r} came back as {again!r}"

    return run


def check_refusal(refused: Exception) -> None:
    """An input that needs too much memory must be refused before the allocation."""
    cause: BaseException | None = refused
    while cause is not None:
        assert not isinstance(cause, MemoryError), (
            "an input made the decoder ask for more memory than there is"
        )
        cause = cause.__cause__


def split(data: bytes, sizes: Iterable[int]) -> list[bytes]:
    """`data` in pieces of these octets, and the rest."""
    pieces, at = [], 0
    for size in sizes:
        pieces.append(data[at : at + size])
        at += size
    return [*pieces, data[at:]]
