"""The dispatch of the core's actions: sends go to the sender, all others to the workers."""

from __future__ import annotations

from collections.abc import Sequence

from mtl.broker import actions as a
from mtl.broker.runtime.ports import Workers
from mtl.broker.runtime.sending import LoopSender


def carry_out(actions: Sequence[a.Action], sender: LoopSender, workers: Workers) -> list[tuple[int, object]]:
    """Carry out the actions of one turn, in order. Returns the results of those that were performed at once."""
    for action in actions:
        if isinstance(action, a.SendReply | a.Send | a.Deliver | a.Relay):
            sender.send(action)
        else:
            workers.begin(action)
    sender.flush()
    return workers.end_turn()
