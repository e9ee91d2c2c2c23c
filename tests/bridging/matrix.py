"""Each protocol as producer and each as consumer of one resource."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import mtl
from tests.bridging.ends import ENDS, MTL, End, taken
from tests.support.doors import BODIES, PROPERTIES

NUMBERED = 200
"""The number of small contents, which show the order, after those with special bodies."""


@dataclass(frozen=True)
class Crossing:
    """The contents transferred from one protocol to another."""

    producer: str
    consumer: str
    contents: int
    properties: int
    """The number of properties of each content at the consumer."""


def bodies(tag: str) -> list[bytes]:
    """Empty, binary, 1 MiB, Unicode, and numbers."""
    return [*BODIES, *(f"{tag}-{number}".encode() for number in range(NUMBERED))]


async def cross(places: Mapping[str, str], producer: End, consumer: End) -> Crossing:
    """Send, receive, compare. Raises `AssertionError` for a lost, duplicate, changed or misplaced content."""
    resource = f"{producer.name}-to-{consumer.name}"
    with mtl.connect(places[MTL]) as c:
        c.create_resource(resource)
    sent = bodies(resource)
    async with (
        consumer.connect(places[consumer.name]) as there,
        consumer.reader(there, resource, "earliest") as reader,
        producer.connect(places[producer.name]) as here,
    ):
        async with producer.writer(here, resource) as writer:
            for body in sent:
                await producer.put(writer, body, PROPERTIES)
        received = await taken(reader, len(sent))
    assert [bytes(content.body) for content in received] == sent
    assert [content.sequence for content in received] == list(range(1, len(sent) + 1))
    expected = consumer.expected_properties(PROPERTIES, producer)
    assert all(dict(content.properties) == expected for content in received)
    return Crossing(producer.name, consumer.name, len(received), len(expected))


def table(crossings: Mapping[tuple[str, str], Crossing]) -> str:
    """Rows are producers, columns consumers."""
    lines = [
        f"| from, to | {' | '.join(ENDS)} |",
        "|---|" + "---|" * len(ENDS),
    ]
    for producer in ENDS:
        cells = [crossings[producer, consumer] for consumer in ENDS]
        descriptions = (f"{cell.contents}, {cell.properties or 'no'} properties" for cell in cells)
        lines.append(f"| {producer} | {' | '.join(descriptions)} |")
    return "\n".join(lines)
