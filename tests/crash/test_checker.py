"""The checker detects every violation: each guarantee is broken once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.crash.bodies import body, origin
from tests.crash.checker import check
from tests.crash.history import Commit, Cursor, History, Kept, Observed, Sent


def whole() -> tuple[History, Observed]:
    """A correct history: two writers and two commits, the second one truncating."""
    history = History(
        sent={("a", "w"): Sent(3, 3), ("b", "v"): Sent(4, 4)},
        commits=[
            Commit("app", 1, {"a": 2, "b": 1}, (), {"a": 2, "b": 2}),
            Commit("app", 2, {"a": 0, "b": 1}, ("b",), {"b": 4}, {("b", "v"): 2}),
        ],
        read_contents={"a": {1: ("w", 1), 2: ("app@1", 1)}},
        cursors={("g", "a"): Cursor(asked=3, durable=2)},
        lasting={"made": True, "deleted": False},
    )
    a = [body("w", 1), body("app@1", 1), body("app@1", 2), body("w", 2), body("w", 3)]
    b = [body("app@2", 1), body("v", 3), body("v", 4)]
    kept = {
        "a": Kept(1, 6, list(enumerate(a, 1))),
        "b": Kept(4, 7, list(enumerate(b, 4))),
        "made": Kept(1, 1, []),
    }
    return history, Observed(kept, {("g", "a"): 3})


def test_a_correct_history_has_no_findings() -> None:
    assert check(*whole()) == []


def _drop(number: int) -> Callable[[History, Observed], None]:
    """Remove a content of resource a; the later ones move up."""

    def change(_: History, observed: Observed) -> None:
        bodies = [octets for sequence, octets in observed.kept["a"].contents if sequence != number]
        observed.kept["a"] = Kept(1, len(bodies) + 1, list(enumerate(bodies, 1)))

    return change


def _append(octets: bytes) -> Callable[[History, Observed], None]:
    def change(_: History, observed: Observed) -> None:
        kept = observed.kept["a"]
        observed.kept["a"] = Kept(1, kept.next + 1, [*kept.contents, (kept.next, octets)])

    return change


def _swap(_: History, observed: Observed) -> None:
    contents = observed.kept["a"].contents
    contents[3], contents[4] = (4, contents[4][1]), (5, contents[3][1])


def _alter(_: History, observed: Observed) -> None:
    sequence, octets = observed.kept["a"].contents[0]
    observed.kept["a"].contents[0] = (sequence, octets[:-1] + bytes([octets[-1] ^ 1]))


def _bring_back(_: History, observed: Observed) -> None:
    observed.kept["b"] = Kept(3, 7, [(3, body("app@1", 1)), *observed.kept["b"].contents])


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        ("lost", _drop(5)),
        ("lost", _drop(4)),
        ("wrong", _drop(3)),
        ("duplicated", _append(body("w", 2))),
        ("wrong", _append(body("w", 4))),
        ("wrong", _append(b"nobody")),
        ("wrong", _swap),
        ("wrong", _alter),
        ("wrong", _bring_back),
        ("lost", lambda _, observed: observed.kept.pop("b")),
        ("lost", lambda _, observed: observed.kept.pop("made")),
        ("wrong", lambda _, observed: observed.kept.update(deleted=Kept(1, 1, []))),
        ("wrong", lambda _, observed: observed.cursors.update({("g", "a"): 4})),
        ("lost", lambda _, observed: observed.cursors.update({("g", "a"): 1})),
        ("lost", lambda _, observed: observed.cursors.clear()),
        ("lost", lambda history, _: history.record_read("a", 6, ("w", 4))),
        ("wrong", lambda history, _: history.record_read("a", 1, ("w", 2))),
        ("wrong", lambda history, _: [history.was_delivered("q", 1, ("w", 1), again=False) for _ in (1, 2)]),
    ],
)
def test_each_broken_guarantee_is_found(kind: str, change: Callable[[History, Observed], object]) -> None:
    history, observed = whole()
    change(history, observed)
    assert kind in {finding.kind for finding in check(history, observed)}


def test_reported_losses_are_accepted_but_wrong_contents_are_not() -> None:
    history, observed = whole()
    observed.kept["a"].contents = observed.kept["a"].contents[:1]
    assert {finding.kind for finding in check(history, observed)} == {"lost"}
    assert check(history, observed, reported={"a"}) == []
    _alter(history, observed)
    assert {finding.kind for finding in check(history, observed, reported={"a"})} == {"wrong"}


def test_a_body_identifies_its_writer_and_every_flipped_bit_is_detected() -> None:
    octets = body("w", 7)
    assert origin(octets) == ("w", 7)
    for at in range(len(octets)):
        for bit in range(8):
            altered = bytearray(octets)
            altered[at] ^= 1 << bit
            assert origin(bytes(altered)) is None
