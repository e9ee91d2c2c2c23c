"""Compares the final state with the history. The checked guarantees are those of PROTOCOL.md, in short:

- confirmed contents exist once, in the order of their writer, with the octets sent;
- delivered contents keep their octets and positions;
- a commit has all its contents together, or none; once per version; it removes exactly the truncated contents;
- a group is never ahead of its confirmed position, and never behind the reported one;
- retention removes the oldest contents without gaps.

`reported` are resources with damage or losses reported by the broker: missing contents of these are accepted, but the
others have to be correct.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from tests.crash.bodies import origin
from tests.crash.history import Commit, History, Kept, Observed, Origin

Kind = Literal["lost", "duplicated", "wrong", "undetected"]


@dataclass(frozen=True)
class Finding:
    """A violated guarantee, and the number of affected contents."""

    kind: Kind
    text: str
    count: int = 1


def check(history: History, observed: Observed, reported: Collection[str] = ()) -> list[Finding]:
    """All violated guarantees."""
    found = [Finding("wrong", text) for text in history.troubles]
    names = {resource for resource, _ in history.sent}
    names |= {resource for commit in history.commits for resource in commit.contents}
    for resource in sorted(names):
        kept = observed.kept.get(resource)
        if kept is None:
            if resource not in reported:
                found.append(
                    Finding(
                        "lost", f"{resource} is missing, with all its contents", _confirmed(history, resource)
                    )
                )
            continue
        found.extend(_resource(history, resource, kept, reported=resource in reported))
    found.extend(_cursors(history, observed, reported))
    found.extend(_lasting(history, observed, reported))
    return found


def _confirmed(history: History, resource: str) -> int:
    return sum(sent.confirmed for (name, _), sent in history.sent.items() if name == resource)


def _resource(history: History, resource: str, kept: Kept, *, reported: bool) -> Iterator[Finding]:
    if kept.trouble and not reported:
        yield Finding("wrong", f"{resource} cannot be read, and nothing was reported: {kept.trouble}")
    sequences = [sequence for sequence, _ in kept.contents]
    if not reported and not kept.trouble and sequences != list(range(kept.earliest, kept.next)):
        yield Finding("lost", f"{resource} says {kept.earliest} to {kept.next} and has {_ranges(sequences)}")
    places: dict[Origin, int] = {}
    numbers: dict[str, list[int]] = {}
    for sequence, octets in kept.contents:
        sender = origin(octets)
        if sender is None:
            yield Finding("wrong", f"{resource}: content {sequence} has octets that no client sent")
        elif sender in places:
            yield Finding("duplicated", f"{resource}: {sender} is content {places[sender]} and {sequence}")
        else:
            places[sender] = sequence
            numbers.setdefault(sender[0], []).append(sender[1])
    yield from _moved_contents(
        history, resource, {sequence: sender for sender, sequence in places.items()}, kept
    )
    for writer, found in numbers.items():
        if found != sorted(found):
            yield Finding("wrong", f"{resource}: the contents of {writer} are in another order: {found[:20]}")
    if not reported and not kept.trouble:
        yield from _writers(history, resource, numbers)
    yield from _commits(history, resource, places, kept, reported=reported or bool(kept.trouble))


def _moved_contents(
    history: History, resource: str, there: dict[int, Origin], kept: Kept
) -> Iterator[Finding]:
    for sequence, known in history.read_contents.get(resource, {}).items():
        now = there.get(sequence)
        if now is not None and now != known:
            yield Finding("wrong", f"{resource}: content {sequence} was seen as {known} and is {now}")
        if sequence >= kept.next and not kept.trouble:
            yield Finding(
                "lost", f"{resource}: content {sequence} was seen as {known}; it ends at {kept.next} now"
            )


def _writers(history: History, resource: str, numbers: dict[str, list[int]]) -> Iterator[Finding]:
    """All numbers of a writer exist, except first ones removed by retention or a commit."""
    last = _truncated(history, resource)
    for (name, writer), sent in history.sent.items():
        if name != resource:
            continue
        found = set(numbers.get(writer, ()))
        if found and max(found) > sent.sent:
            yield Finding("wrong", f"{resource}: {writer} sent {sent.sent}, and {max(found)} is there")
        floor = last.floors.get((resource, writer), 0) if last is not None else 0
        first = min(found, default=sent.confirmed + 1)
        allowed = first - 1 if resource in history.trimmed else min(floor, first - 1)
        missing = [number for number in range(allowed + 1, sent.confirmed + 1) if number not in found]
        if missing:
            yield Finding("lost", f"{resource}: of {writer} {_ranges(missing)} are missing", len(missing))
        gaps = set(range(first, max(found, default=0) + 1)) - found - set(missing)
        if gaps:
            yield Finding(
                "wrong", f"{resource}: of {writer} {_ranges(sorted(gaps))} were left out", len(gaps)
            )


def _truncated(history: History, resource: str) -> Commit | None:
    """The last answered commit that truncated the resource."""
    return next(
        (commit for commit in reversed(history.commits) if resource in commit.truncate and commit.first), None
    )


def _commits(
    history: History, resource: str, places: dict[Origin, int], kept: Kept, *, reported: bool
) -> Iterator[Finding]:
    last = _truncated(history, resource)
    for commit in history.commits:
        contents = commit.contents.get(resource, 0)
        found = [places.get((commit.writer, number)) for number in range(1, contents + 1)]
        there = [place for place in found if place is not None]
        if there and there != list(range(there[0], there[0] + len(there))):
            yield Finding(
                "wrong", f"{resource}: the contents of {commit.writer} are not together: {_ranges(there)}"
            )
        gone = last is not None and commit.version < last.version
        if reported:
            continue
        if gone and there:
            yield Finding("wrong", f"{resource}: {commit.writer} was truncated and is there")
        elif len(there) < contents and not gone:
            if there and resource not in history.trimmed:
                yield Finding(
                    "wrong", f"{resource}: {len(there)} of {contents} contents of {commit.writer} are there"
                )
            elif commit.first is not None and commit.first[resource] >= kept.earliest:
                yield Finding("lost", f"{resource}: {commit.writer} is missing", contents)
        if (
            there
            and len(there) == contents
            and commit.first is not None
            and there[0] != commit.first[resource]
        ):
            first = commit.first[resource]
            yield Finding(
                "wrong", f"{resource}: {commit.writer} is at {there[0]}, and was said to be at {first}"
            )


def _cursors(history: History, observed: Observed, reported: Collection[str]) -> Iterator[Finding]:
    for (group, resource), cursor in history.cursors.items():
        position = observed.cursors.get((group, resource))
        if position is None:
            if resource not in reported:
                yield Finding("lost", f"{resource}: the group {group} is missing")
        elif position > cursor.asked:
            yield Finding("wrong", f"{resource}: {group} confirmed up to {cursor.asked} and is at {position}")
        elif position < cursor.durable and resource not in reported:
            yield Finding("lost", f"{resource}: {group} was at {cursor.durable} and is at {position}")


def _lasting(history: History, observed: Observed, reported: Collection[str]) -> Iterator[Finding]:
    for name, there in history.lasting.items():
        if name in reported:
            continue
        if there is True and name not in observed.kept:
            yield Finding("lost", f"{name} was made and is not there")
        if there is False and name in observed.kept:
            yield Finding("wrong", f"{name} was deleted and is there")


def _ranges(numbers: list[int]) -> str:
    """Numbers as ranges."""
    ends: list[list[int]] = []
    for number in numbers:
        if ends and number == ends[-1][1] + 1:
            ends[-1][1] = number
        else:
            ends.append([number, number])
    listed = ", ".join(str(a) if a == b else f"{a} to {b}" for a, b in ends[:6])
    return listed + (", ..." if len(ends) > 6 else "") if ends else "none"
