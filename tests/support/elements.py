"""Messages of Reactive Streams as on the wire, independent of how many were decoded together."""

from __future__ import annotations

from collections.abc import Iterable

from mtl.doors.reactive import codec


def apart(messages: Iterable[codec.Message]) -> list[codec.Message]:
    """Split groups of onNext into single ones."""
    return [
        single
        for message in messages
        for single in (
            [codec.OnNext(message.subscriber, element) for element in message.elements]
            if isinstance(message, codec.OnNexts)
            else [message]
        )
    ]
