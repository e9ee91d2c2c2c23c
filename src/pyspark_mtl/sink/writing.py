"""Writes the rows of a task into stages (or directly into resources), with one writer lease for each frame's resources.

New resources in a later frame get another lease. A task without rows sends no request. A stage is invisible until
the driver names it in Stage.Commit; the stage of a failed or second attempt is never named, and expires.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from mtl.errors import OptionError, Refused
from mtl.wire.control import UNKNOWN_RESOURCE, Durability, Retention, StageSpec
from pyspark_mtl.connections import connection
from pyspark_mtl.limits import GATHERED_OCTETS, MAX_OPEN_RESOURCES_PER_TASK
from pyspark_mtl.options.settings import WriteSettings
from pyspark_mtl.rows.digest import Digest, of_contents, of_rows
from pyspark_mtl.rows.frames import contents, gathered, split

if TYPE_CHECKING:
    from mtl.client.writer import Writer
    from pyspark_mtl.rows.bodies.shape import Shape


def create(settings: WriteSettings, resource: str) -> None:
    """Create a missing resource. OptionError without createResource=true."""
    wanted = settings.create
    if wanted is None:
        raise OptionError(
            f"the resource {resource!r} to write to does not exist; create it, or give createResource=true"
        )
    retention = Retention(
        bytes=wanted.bytes,
        age=wanted.age,
        contents=wanted.contents,
        groups=wanted.groups,
        hard_bytes=wanted.hard_bytes,
    )
    connection(settings.connect).create_resource(
        resource,
        durability=cast(Durability, wanted.durability),
        retention=None if retention == Retention() else retention,
        exist_ok=True,
    )


@dataclass(frozen=True)
class Written:
    """The result of a task: the public ids of its sealed stages, in order, the content count of each resource, and the
    digest of the rows.
    """

    stages: tuple[str, ...] = ()
    contents: tuple[tuple[str, int], ...] = ()
    digest: Digest = field(default_factory=Digest)


class TaskWriter:
    """The writers of one task. Its stages are for batch `version` of `application`.

    As a context manager it abandons its writers if the task fails. Contents count only after `finish`. With a `shape`
    the frames have typed rows.
    """

    def __init__(
        self, settings: WriteSettings, application: str, version: int, shape: Shape | None = None
    ) -> None:
        self._settings = settings
        self._application = application
        self._version = version
        self._writers: dict[str, Writer] = {}
        self._counts: dict[str, int] = {}
        self._shape = shape
        self._digest = Digest()

    def write(self, frames: Iterable[Any]) -> None:
        """Send the rows of frames; blocks while the writers' windows are full."""
        for frame in gathered(self._raw(frames), GATHERED_OCTETS):
            self._send(frame)

    def _raw(self, frames: Iterable[Any]) -> Iterable[Any]:
        if self._shape is None:
            return frames
        from pyspark_mtl.rows.typed import raw  # noqa: PLC0415 not needed for raw bodies

        return raw(self._shape, self._digested(frames) if self._bodies_have_rows else frames)

    @property
    def _bodies_have_rows(self) -> bool:
        """Whether a body has many rows: their distribution over bodies is another in a repetition of the batch."""
        return self._shape is not None and self._shape.options.format == "arrow"

    def _digested(self, frames: Iterable[Any]) -> Iterable[Any]:
        for frame in frames:
            self._digest += of_rows(frame, self._settings.resource, hashed=self._settings.hash_rows)
            yield frame

    def _send(self, frame: Any) -> None:
        batches = list(contents(frame, self._settings.resource))
        self._open([resource for resource, _ in batches if resource not in self._writers])
        for resource, batch in batches:
            writer = self._writers[resource]
            for part in split(batch, writer.max_content, writer.max_pack):
                writer.send_pack(part, resource=resource)
            self._counts[resource] = self._counts.get(resource, 0) + batch.num_rows
            if not self._bodies_have_rows:
                self._digest += of_contents(batch, resource, hashed=self._settings.hash_rows)

    def finish(self) -> Written:
        """Wait until everything is durable, and seal the stages."""
        if self._settings.exactly_once:
            stages = tuple(writer.seal().stage for writer in self._opened)
        else:
            stages = ()
            for writer in self._opened:
                writer.close()
        return Written(stages, tuple(self._counts.items()), self._digest)

    @property
    def _opened(self) -> list[Writer]:
        """The writers without repetitions, in the order of their opening."""
        return list(dict.fromkeys(self._writers.values()))

    def _open(self, resources: list[str]) -> None:
        """Open one lease for all of these: each lease costs a connection, and a stage in the broker."""
        if not resources:
            return
        if len(self._writers) + len(resources) > MAX_OPEN_RESOURCES_PER_TASK:
            raise OptionError(
                f"one task writes to more than {MAX_OPEN_RESOURCES_PER_TASK} resources; "
                "repartition the DataFrame by its column 'resource', so that each task has fewer"
            )
        try:
            writer = self._lease(resources)
        except Refused as refused:
            if refused.reason != UNKNOWN_RESOURCE:
                raise
            for resource in refused.members.get("missing", resources):
                create(self._settings, resource)
            writer = self._lease(resources)
        self._writers.update(dict.fromkeys(resources, writer))

    def _lease(self, resources: list[str]) -> Writer:
        stage = None
        if self._settings.exactly_once:
            stage = StageSpec(application=self._application, version=self._version)
        return connection(self._settings.connect).writer(resources, packed=True, stage=stage)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Abandon the writers of a task that failed, without a wait."""
        if kind is not None:
            for writer in self._opened:
                writer.abandon()


def write(
    settings: WriteSettings,
    frames: Iterable[Any],
    application: str,
    version: int,
    shape: Shape | None = None,
) -> Written:
    """Write all rows of a task. On return they are durable; with exactly-once they stay invisible until the commit."""
    with TaskWriter(settings, application, version, shape) as task:
        task.write(frames)
        return task.finish()
