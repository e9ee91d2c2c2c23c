"""Groups with a real broker: cursors, holders, members and fencing."""

from __future__ import annotations

import pytest

from mtl.client.connection import Connection
from mtl.errors import Fenced
from mtl.testing import RunningBroker
from tests.support.contents import numbered, write


def test_a_holders_confirm_moves_the_groups_cursor(connection: Connection) -> None:
    write(connection, 100)
    with connection.reader("orders", start="group", group="spark", holder="driver") as holder:
        assert holder.holding_epoch == 1
        assert holder.group_position == 1
        with connection.reader(
            "orders", start=1, until=51, group="spark", holding_epoch=holder.holding_epoch
        ) as member:
            assert [content.body for content in member] == numbered(50)
        assert connection.cursors("spark")[0].position == 1  # a member's Confirm is only credit
        holder.confirm(50)
        holder.ping_holder()
        cursor = connection.cursors("spark", "orders")[0]
        assert (cursor.position, cursor.behind, cursor.held, cursor.holder) == (51, 50, True, "driver")
        holder.confirm(20)
        holder.ping_holder()
        assert connection.cursors("spark")[0].position == 51
    with connection.reader("orders", until=101, group="spark") as reader:
        assert reader.position == 51
        assert [content.body for content in reader] == numbered(50, 50)
        reader.confirm(100)
    assert connection.cursors("spark")[0].position == 101
    connection.cursor_delete("spark", "orders")
    assert connection.cursors("spark") == []


def test_a_newer_holder_fences_the_older_for_good(connection: Connection) -> None:
    write(connection, 10)
    older = connection.reader("orders", group="spark", holder="one")
    same = connection.reader("orders", group="spark", holder="one")
    newer = connection.reader("orders", group="spark", holder="two")
    for fenced in (older, same):
        with pytest.raises(Fenced):
            fenced.ping_holder(timeout=15)
        with pytest.raises(Fenced):
            fenced.next(timeout=0.0)
        fenced.close()
    with pytest.raises(Fenced):
        connection.reader("orders", start=1, group="spark", holding_epoch=1)
    newer.confirm(7)
    newer.ping_holder()
    newer.close()
    assert connection.cursors("spark")[0].position == 8


def test_a_holder_survives_a_restart_of_the_broker(mtl_broker: RunningBroker, connection: Connection) -> None:
    write(connection, 10)
    with connection.reader("orders", start="group", group="spark", holder="driver") as holder:
        epoch = holder.holding_epoch
        holder.confirm(3)
        holder.ping_holder()
        mtl_broker.kill()
        mtl_broker.restart()
        holder.confirm(6)
        holder.ping_holder()
        assert connection.cursors("spark")[0].position == 7
        with connection.reader(
            "orders", start=7, until=11, group="spark", holding_epoch=holder.holding_epoch
        ) as member:
            assert [content.body for content in member] == numbered(4, 6)
        assert holder.holding_epoch == epoch, "tasks with this epoch continue"
