"""The control commands: one row for each. Names, rights, profiles and open logs follow from it."""

from __future__ import annotations

from typing import Final

from mtl.broker.access.accounts import ON_RESOURCES, Right
from mtl.broker.commands.command import Command, Commands
from mtl.broker.commands.needed_logs import NeededLogs
from mtl.broker.commands.request_names import RequestNames
from mtl.profiles import CommandClass
from mtl.wire import control

READ, WRITE, MANAGE = frozenset({Right.READ}), frozenset({Right.WRITE}), frozenset({Right.MANAGE})
GROUP, QUEUE = frozenset({Right.GROUP}), frozenset({Right.QUEUE})
WRITER, APPLICATION = frozenset({Right.WRITER}), frozenset({Right.APPLICATION})
CONNECTION, DURABLE, CURSORS = CommandClass.CONNECTION, CommandClass.DURABLE, CommandClass.CURSORS

# fmt: off
COMMANDS: Final[Commands] = {
    control.ConnectionOpen: Command(
        of=CONNECTION, logs=NeededLogs.no_logs, session=True,
        because="connecting sends it"),
    control.ConnectionAuthorize: Command(
        of=CONNECTION, logs=NeededLogs.no_logs, session=True,
        because="connecting sends it"),
    control.ConnectionProfile: Command(
        of=CONNECTION, logs=NeededLogs.no_logs, session=True,
        because="connecting sends it"),
    # A lease of "any and all" has the resources that its principal may read.
    control.ConnectionReader: Command(
        of=CONNECTION, logs=NeededLogs.read,
        rights=((READ, RequestNames.resources),
                (GROUP, RequestNames.read_group),
                (QUEUE, RequestNames.read_queue),
                (WRITE, RequestNames.buried)),
        client="reader", command_line="tail"),
    control.ConnectionWriter: Command(
        of=CONNECTION, logs=NeededLogs.written,
        rights=((WRITE, RequestNames.written),
                (WRITER, RequestNames.writer),
                (APPLICATION, RequestNames.writer_application)),
        client="writer", command_line="publish"),
    # Of its own principal's leases.
    control.LeaseClose: Command(
        of=DURABLE, logs=NeededLogs.no_logs,
        because="a reader or writer sends it when it is closed"),
    # An existing one is described.
    control.ResourceCreate: Command(
        of=DURABLE, logs=NeededLogs.resource,
        rights=((MANAGE, RequestNames.created),),
        client="create_resource", command_line="resource create"),
    control.ResourceDelete: Command(
        of=DURABLE, logs=NeededLogs.resource,
        rights=((MANAGE, RequestNames.resource),),
        client="delete_resource", command_line="resource delete"),
    # The answer contains only visible names.
    control.ResourceList: Command(
        of=DURABLE, logs=NeededLogs.listed,
        client="list_resources", command_line="resource list"),
    control.ResourceDescribe: Command(
        of=DURABLE, logs=NeededLogs.described,
        rights=((ON_RESOURCES, RequestNames.described),),
        client="describe", command_line="resource describe"),
    control.ResourceLocate: Command(
        of=DURABLE, logs=NeededLogs.resource,
        rights=((READ, RequestNames.resource),),
        client="locate_time", because="`mtl tail --from` and `mtl cursors reset` take a time and send it"),
    control.CursorOpen: Command(
        of=CURSORS, logs=NeededLogs.resource,
        rights=((READ, RequestNames.resource), (GROUP, RequestNames.group)),
        client="cursor_open", because="a reader of a group opens its cursor"),
    control.CursorReset: Command(
        of=CURSORS, logs=NeededLogs.resource,
        rights=((READ, RequestNames.resource), (GROUP, RequestNames.group)),
        client="cursor_reset", command_line="cursors reset"),
    control.CursorDelete: Command(
        of=CURSORS, logs=NeededLogs.no_logs,
        rights=((READ, RequestNames.resource), (GROUP, RequestNames.group)),
        client="cursor_delete", command_line="cursors delete"),
    control.CursorDescribe: Command(
        of=CURSORS, logs=NeededLogs.with_cursors,
        rights=((ON_RESOURCES, RequestNames.resource),),
        client="cursors", command_line="cursors"),
    control.QueueDelete: Command(
        of=DURABLE, logs=NeededLogs.no_logs,
        rights=((READ, RequestNames.resource), (QUEUE, RequestNames.group)),
        client="queue_delete", command_line="queues delete"),
    control.QueueDescribe: Command(
        of=DURABLE, logs=NeededLogs.with_queues,
        rights=((ON_RESOURCES, RequestNames.resource),),
        client="queues", command_line="queues"),
    # MANAGE: as for Resource.Delete.
    control.StageCommit: Command(
        of=DURABLE, logs=NeededLogs.committed,
        rights=((WRITE, RequestNames.staged_and_committed),
                (MANAGE, RequestNames.truncated),
                (APPLICATION, RequestNames.application)),
        client="stage_commit", because="the application that staged the contents commits them"),
    control.StageAbort: Command(
        of=DURABLE, logs=NeededLogs.no_logs,
        rights=((WRITE, RequestNames.staged), (APPLICATION, RequestNames.aborted_applications)),
        client="stage_abort", command_line="stages abort"),
    control.StageForget: Command(
        of=DURABLE, logs=NeededLogs.no_logs,
        rights=((WRITE, RequestNames.committed), (APPLICATION, RequestNames.application)),
        client="stage_forget", command_line="stages forget"),
    # The answer contains only visible names.
    control.StageDescribe: Command(
        of=DURABLE, logs=NeededLogs.with_stages,
        client="stages", command_line="stages list"),
}
# fmt: on
