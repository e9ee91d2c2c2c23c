"""Messages of Reactive Streams as on the wire, independent of how many were decoded together."""

from __future__ import annotations

from collections.abc import Iterable

from mtl.doors.reactive import codec as m


def apart(messages: Iterable[m.Message]) -> list[m.Message]:
    """Split groups of onNext into single ones."""
    return [
        single
        for message in messages
        for single in (
            [m.OnNext(message.subscriber, element) for element in message.elements]
            if isinstance(message, m.OnNexts)
            else [message]
        )
    ]
