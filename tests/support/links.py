"""The common part of all test links: many messages are sent and received singly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import takewhile

from mtl.net.endpoint import Frames
from mtl.wire.fields import Buffer


class OneByOne(ABC):
    """See the module."""

    malformed = 0

    @abstractmethod
    def send(self, first: bytes, second: Buffer) -> bool: ...

    @abstractmethod
    def receive(self) -> Frames | None: ...

    def send_many(self, firsts: Sequence[bytes], seconds: Sequence[Buffer]) -> int:
        return sum(1 for _ in takewhile(bool, map(self.send, firsts, seconds)))

    def receive_many(self, most: int) -> tuple[list[bytes], list[Buffer]]:
        found = [frames for _ in range(most) if (frames := self.receive()) is not None]
        return [first for first, _ in found], [second for _, second in found]
