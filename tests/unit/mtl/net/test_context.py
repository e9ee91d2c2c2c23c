from __future__ import annotations

import os

import pytest
import zmq

from mtl.net.context import context
from mtl.net.limits import MAX_SOCKETS


def test_a_process_has_one_context_with_room_for_many_sockets() -> None:
    assert context() is context()
    assert context().get(zmq.MAX_SOCKETS) == MAX_SOCKETS


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_child_never_uses_its_parents_context() -> None:
    mine = context()
    child = os.fork()
    if child == 0:
        os._exit(0 if context() is not mine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert context() is mine
