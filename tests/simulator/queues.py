"""Queues: consumers that share a resource's contents, are killed, reject and recycle, and the required result.

Every content is confirmed or dead in the end, none is dead twice, and every redelivery is marked. The tag of a content
decides the answer of a consumer: some are always rejected, some are recycled sometimes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

from mtl.client.consumer_part import ConsumerOptions, ConsumerPart
from mtl.client.control import Outcome
from mtl.protocol.consuming import ConsumerAnswer, Hand
from mtl.wire import commands, control
from tests.simulator.model import Model, Tag, Violation
from tests.simulator.network import Routers
from tests.simulator.process import Process, is_of_the_disk
from tests.simulator.world import World

DEAD = ".dead"
_BAD_OF = 11
_DESCRIBE_S = 1.0


def is_bad(tag: Tag) -> bool:
    """Whether consumers always reject this content."""
    return crc32(tag.encode()) % _BAD_OF == 0


class QueueApp:
    """One queue of a resource, and the positions of contents delivered and confirmed."""

    def __init__(
        self, world: World, routers: Routers, model: Model, name: str, resource: str, consumers: int
    ) -> None:
        self.world = world
        self.name = name
        self.resource = resource
        self.model = model
        self.delivered: dict[int, Tag] = {}
        self.unmarked: set[int] = set()
        """Positions delivered without a mark. Each may be delivered so only once, even if a suspended consumer gets it
        last.
        """
        self.confirmed: set[int] = set()
        self.description: control.QueueInfo | None = None
        self.since = 0.0
        """The time from which on the broker's descriptions count."""
        self.consumers = [ConsumerApp(self, routers, f"{name}-{n}") for n in range(consumers)]

    @property
    def settled(self) -> bool:
        """Whether the broker reports all contents as settled."""
        return self.description is not None and self.description.unsettled == 0

    def written(self) -> None:
        """All contents are written: earlier descriptions of the queue do not count."""
        self.since = self.world.mono
        self.description = None

    def kill(self) -> None:
        """One of the consumers dies."""
        self.world.random.choice(self.consumers).kill()

    def take(self, hand: Hand, content: commands.Content) -> Tag:
        """A consumer gets a content."""
        tag = bytes(content.body).decode()
        self.model.show(self.resource, hand.position, [tag])
        if hand.position in self.unmarked and not hand.again:
            raise Violation(f"{self.name} is given {hand.position} of {self.resource} again, without a mark")
        if not hand.again:
            self.unmarked.add(hand.position)
        self.delivered[hand.position] = tag
        return tag

    def check(self, contents: Mapping[int, Tag], letters: Sequence[Mapping[str, Any]]) -> None:
        """Check the settled state: `contents` of the resource, and the properties of this queue's dead letters.
        Contents lost repeatedly with their flows are among them without a delivery to an application (PROTOCOL.md
        6).
        """
        dead = [letter["dead-letter-sequence"] for letter in letters]
        if len(dead) != len(set(dead)):
            raise Violation(f"{self.name}: dead letters twice: {sorted(dead)}")
        reasons = {letter["dead-letter-sequence"]: letter["dead-letter-reason"] for letter in letters}
        for sequence, tag in contents.items():
            if sequence not in self.delivered and reasons.get(sequence) != "part":
                raise Violation(f"{self.name} never delivered {sequence} of {self.resource}")
            if is_bad(tag) and sequence not in reasons:
                raise Violation(f"{self.name}: {sequence} was rejected and is not among the dead letters")
            if sequence not in self.confirmed and sequence not in reasons:
                raise Violation(f"{self.name}: {sequence} was neither confirmed nor is it dead")


class ConsumerApp:
    """One consumer: gets contents, answers them after a while, and is killed sometimes."""

    def __init__(self, queue: QueueApp, routers: Routers, name: str) -> None:
        self.queue = queue
        self.world = queue.world
        self.name = name
        self._routers = routers
        self._hands: list[tuple[Hand, Tag]] = []
        self.begin()

    def begin(self) -> None:
        """A new life."""
        self.process = Process(self.world, self._routers, self.name)
        self.channel = self.process.channel(profile="queue")
        queue = self.queue
        options = ConsumerOptions(
            (queue.resource,), queue.name, "earliest", 1 + self.world.upto(20), 16 << 10
        )
        self.part = ConsumerPart(self.process.loop, self.channel, options)
        self.part.flow.start()
        self._hands.clear()
        self.process.wake()
        self._work_later()
        self.process.after(_DESCRIBE_S, self._describe)

    def kill(self) -> None:
        """Kill the process with its unsettled contents."""
        self.process.kill()
        self.begin()

    def _work_later(self) -> None:
        self.process.after(self.world.between(0.002, 0.1), self._work)

    def _work(self) -> None:
        part = self.part
        if is_of_the_disk(part.error):
            self.process.after(self.world.between(0.05, 2.0), self.kill)
            return
        if part.error is not None:
            raise Violation(f"consumer {self.name} failed: {part.error!r}")
        while part.queue:
            hand, content = part.queue.popleft()
            self._hands.append((hand, self.queue.take(hand, content)))
        for _ in range(min(len(self._hands), self.world.upto(8))):
            hand, tag = self._hands.pop(self.world.upto(len(self._hands) - 1))
            part.answers.append((hand, self._answer(hand, tag), ""))
        part.answer()
        self._work_later()

    def _answer(self, hand: Hand, tag: Tag) -> ConsumerAnswer:
        if is_bad(tag):
            return ConsumerAnswer.REJECT
        if self.world.chance(0.02):
            return ConsumerAnswer.RECYCLE
        self.queue.confirmed.add(hand.position)
        return ConsumerAnswer.CONFIRM

    def _describe(self) -> None:
        asked = self.world.mono
        request = control.QueueDescribe(group=self.queue.name, resource=self.queue.resource)
        self.process.ask(self.channel, request, lambda outcome: self._described(asked, outcome))

    def _described(self, asked: float, outcome: Outcome) -> None:
        if isinstance(outcome, control.QueueList):
            for info in outcome.queues if asked >= self.queue.since else ():
                self.queue.description = info
        elif not is_of_the_disk(outcome):
            raise Violation(f"{self.name} cannot see its queue: {outcome!r}")
        self.process.after(_DESCRIBE_S, self._describe)
