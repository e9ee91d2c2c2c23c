"""The control commands: one row for each. Names, rights, profiles, open logs and dispatch follow from it."""

from __future__ import annotations

from typing import Final

from mtl.broker.access.accounts import ON_RESOURCES, Right
from mtl.broker.commands.command import Command, Commands
from mtl.broker.commands.names_asked import NamesAsked
from mtl.broker.commands.needed_logs import NeededLogs
from mtl.broker.commands.requests import Requests
from mtl.profiles import CommandClass
from mtl.wire import control as w

READ, WRITE, MANAGE = frozenset({Right.READ}), frozenset({Right.WRITE}), frozenset({Right.MANAGE})
GROUP, QUEUE = frozenset({Right.GROUP}), frozenset({Right.QUEUE})
WRITER, APPLICATION = frozenset({Right.WRITER}), frozenset({Right.APPLICATION})
CONNECTION, DURABLE, CURSORS = CommandClass.CONNECTION, CommandClass.DURABLE, CommandClass.CURSORS

COMMANDS: Final[Commands] = {
    w.Open: Command(
        of=CONNECTION,
        logs=NeededLogs.nothing,
        method=Requests.open,
        session=True,
        because="connecting sends it",
    ),
    w.Authorize: Command(
        of=CONNECTION,
        logs=NeededLogs.nothing,
        method=Requests.authorize,
        session=True,
        because="connecting sends it",
    ),
    w.Profile: Command(
        of=CONNECTION,
        logs=NeededLogs.nothing,
        method=Requests.select,
        session=True,
        because="connecting sends it",
    ),
    w.Reader: Command(
        of=CONNECTION,
        # A lease of "any and all" has the resources that its principal may read.
        rights=(
            (READ, NamesAsked.resources),
            (GROUP, NamesAsked.read_group),
            (QUEUE, NamesAsked.read_queue),
            (WRITE, NamesAsked.buried),
        ),
        logs=NeededLogs.read,
        method=Requests.reader,
        client="reader",
        command_line="tail",
    ),
    w.Writer: Command(
        of=CONNECTION,
        rights=(
            (WRITE, NamesAsked.written),
            (WRITER, NamesAsked.writer),
            (APPLICATION, NamesAsked.writer_application),
        ),
        logs=NeededLogs.written,
        method=Requests.writer,
        client="writer",
        command_line="publish",
    ),
    w.LeaseClose: Command(
        of=DURABLE,  # of its own principal's leases
        logs=NeededLogs.nothing,
        method=Requests.close_lease,
        because="a reader or writer sends it when it is closed",
    ),
    w.ResourceCreate: Command(
        of=DURABLE,
        rights=((MANAGE, NamesAsked.created),),
        logs=NeededLogs.resource,  # an existing one is described
        method=Requests.create_resource,
        client="create_resource",
        command_line="resource create",
    ),
    w.ResourceDelete: Command(
        of=DURABLE,
        rights=((MANAGE, NamesAsked.resource),),
        logs=NeededLogs.resource,
        method=Requests.delete_resource,
        client="delete_resource",
        command_line="resource delete",
    ),
    w.ResourceList: Command(
        of=DURABLE,  # shows what may be seen
        logs=NeededLogs.listed,
        method=Requests.list_resources,
        client="list_resources",
        command_line="resource list",
    ),
    w.ResourceDescribe: Command(
        of=DURABLE,
        rights=((ON_RESOURCES, NamesAsked.described),),
        logs=NeededLogs.described,
        method=Requests.describe_resources,
        client="describe",
        command_line="resource describe",
    ),
    w.ResourceLocate: Command(
        of=DURABLE,
        rights=((READ, NamesAsked.resource),),
        logs=NeededLogs.resource,
        method=Requests.locate,
        client="locate_time",
        because="`mtl tail --from` and `mtl cursors reset` take a time and send it",
    ),
    w.CursorOpen: Command(
        of=CURSORS,
        rights=((READ, NamesAsked.resource), (GROUP, NamesAsked.group)),
        logs=NeededLogs.resource,
        method=Requests.open_cursor,
        client="cursor_open",
        because="a reader of a group opens its cursor",
    ),
    w.CursorReset: Command(
        of=CURSORS,
        rights=((READ, NamesAsked.resource), (GROUP, NamesAsked.group)),
        logs=NeededLogs.resource,
        method=Requests.reset_cursor,
        client="cursor_reset",
        command_line="cursors reset",
    ),
    w.CursorDelete: Command(
        of=CURSORS,
        rights=((READ, NamesAsked.resource), (GROUP, NamesAsked.group)),
        logs=NeededLogs.nothing,
        method=Requests.delete_cursor,
        client="cursor_delete",
        command_line="cursors delete",
    ),
    w.CursorDescribe: Command(
        of=CURSORS,
        rights=((ON_RESOURCES, NamesAsked.resource),),
        logs=NeededLogs.with_cursors,
        method=Requests.describe_cursors,
        client="cursors",
        command_line="cursors",
    ),
    w.QueueDelete: Command(
        of=DURABLE,
        rights=((READ, NamesAsked.resource), (QUEUE, NamesAsked.group)),
        logs=NeededLogs.nothing,
        method=Requests.delete_queue,
        client="queue_delete",
        command_line="queues delete",
    ),
    w.QueueDescribe: Command(
        of=DURABLE,
        rights=((ON_RESOURCES, NamesAsked.resource),),
        logs=NeededLogs.with_queues,
        method=Requests.describe_queues,
        client="queues",
        command_line="queues",
    ),
    w.StageCommit: Command(
        of=DURABLE,
        rights=(
            (WRITE, NamesAsked.staged_and_committed),
            (MANAGE, NamesAsked.truncated),  # as Resource.Delete
            (APPLICATION, NamesAsked.application),
        ),
        logs=NeededLogs.committed,
        method=Requests.commit,
        client="stage_commit",
        because="the application that staged the contents commits them",
    ),
    w.StageAbort: Command(
        of=DURABLE,
        rights=((WRITE, NamesAsked.staged), (APPLICATION, NamesAsked.aborted_applications)),
        logs=NeededLogs.nothing,
        method=Requests.abort_stages,
        client="stage_abort",
        command_line="stages abort",
    ),
    w.StageForget: Command(
        of=DURABLE,
        rights=((WRITE, NamesAsked.committed), (APPLICATION, NamesAsked.application)),
        logs=NeededLogs.nothing,
        method=Requests.forget_application,
        client="stage_forget",
        command_line="stages forget",
    ),
    w.StageDescribe: Command(
        of=DURABLE,  # shows what may be seen
        logs=NeededLogs.with_stages,
        method=Requests.describe_stages,
        client="stages",
        command_line="stages list",
    ),
}
