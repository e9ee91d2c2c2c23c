"""Opening readers, consumers and writers: the methods, options and checks that both connections have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Generic, Literal, TypeVar
from uuid import uuid4

from mtl.client.arguments import checked
from mtl.client.consumer_part import ConsumerOptions, ConsumerPart
from mtl.client.control import Channel
from mtl.client.limits import (
    CONSUMER_WINDOW_CONTENTS,
    PLAIN_WINDOW_CONTENTS,
    READER_WINDOW,
    READER_WINDOW_CONTENTS,
    WRITER_WINDOW,
    WRITER_WINDOW_CONTENTS,
)
from mtl.client.log_reader_part import LogReaderPart
from mtl.client.loop import Loop
from mtl.client.reader_part import ReaderOptions, ReaderPart, Start
from mtl.client.resources import Administration, listed, own_name
from mtl.client.rfc_reader_part import RfcReaderPart
from mtl.client.settings import Settings
from mtl.client.writer_part import WriterOptions, WriterPart
from mtl.errors import OptionError
from mtl.net.curve import client_keys
from mtl.wire import control

ReaderT = TypeVar("ReaderT")
ConsumerT = TypeVar("ConsumerT")
WriterT = TypeVar("WriterT")

Confirm = Literal["full", "none"]

_TEST = "test"
"""The RFC's own profile, without extensions at any server."""


class LeasingConnection(Administration, Generic[ReaderT, ConsumerT, WriterT]):
    """See the module. In the asyncio client the methods return an object for `async with` or `await`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._sees_files = settings.local_reads
        """Whether to ask for places of packs in the broker's files; False after one failed attempt to read these."""
        self._curve = client_keys(settings.curve_server_key, settings.curve_key_file)

    @property
    def endpoint(self) -> str:
        """The broker's control endpoint."""
        return self.settings.endpoint

    @checked
    def reader(
        self,
        resource: str,
        *,
        start: Start | None = None,
        until: int | None = None,
        group: str | None = None,
        holder: str | None = None,
        holding_epoch: int | None = None,
        packed: bool | None = None,
        window_contents: int | None = None,
        window_bytes: int | None = None,
        incarnation: str | None = None,
        log_epoch: str | None = None,
        until_epoch: str | None = None,
        skip_lost: bool = False,
        confirm: Confirm | None = None,
    ) -> ReaderT:
        """Open a reader of `resource`; the result is a context manager.

            with connection.reader("orders", group="billing") as reader:
                for content in reader:
                    handle(content.body)
                    reader.confirm(content.sequence)

        - `start`: where it begins: "earliest", "latest", "group" (the group's cursor) or a sequence. Default: "group"
          with a group, else "earliest".
        - `until`: the sequence at which it ends, exclusive. Default: it has no end.
        - `group`: the name of a durable cursor. Without `holding_epoch` the reader holds the group: its `confirm` moves
          the cursor, and an older holder is fenced.
        - `holder`: the id of the holder; a reader with the same id does not fence the others. Default: a new one.
        - `holding_epoch`: from `Reader.holding_epoch` of the holder; the reader is a member of that holding.
        - `packed`: whether many contents are transported in one message. Default: yes, where the server can.
        - `window_contents`: contents that may be sent and not consumed. Default: 320,000, without `packed` 20,000.
        - `window_bytes`: the same in stored octets. Default: 33,554,432.
        - `incarnation`: of the resource, from a `Description`; another one is refused. Default: the present one.
        - `log_epoch`: the epoch of the last content before the sequence `start`, from `Reader.log_epoch`. If the
          broker's data is another copy, `DataLoss` is raised instead of other contents read. Default: no check.
        - `until_epoch`: the epoch of the last content before `until`, for a range that existed as a whole. Default: no
          check.
        - `skip_lost`: whether contents that retention removed are skipped and listed in `Reader.lost`, instead of a
          `DataLoss`. Default: no.
        - `confirm`: "full" or "none", RFC 11's model. Default: "full", which detects losses; "none" in profile `test`.

        Raises `Refused` (404 no such resource, 409 another incarnation), `DataLoss`, `Fenced`, `NotGranted`,
        `OptionError` for arguments that contradict each other.
        """
        extended = self._extended
        if extended and self.settings.profile.lower() == "queue":
            raise OptionError('the profile "queue" has no positioned readers; use consumer')
        packed = extended if packed is None else packed
        if not extended and (packed or start is not None or group is not None or until is not None):
            raise self._unknown_to_the_rfc("start, until, group or packed contents")
        if holding_epoch is not None and group is None:
            raise OptionError("holding_epoch belongs to a group's holding; give the group, too")
        if (log_epoch is not None and not isinstance(start, int)) or (
            until_epoch is not None and until is None
        ):
            raise OptionError("log_epoch needs a sequence as start, and until_epoch needs until")
        holds = group is not None and holding_epoch is None
        options = ReaderOptions(
            resource=resource,
            start=start if start is not None else "group" if group is not None else "earliest",
            until=until,
            group=group,
            holder=holder if holder is not None or not holds else uuid4().hex,
            holding_epoch=holding_epoch,
            packed=packed,
            window_contents=window_contents or (READER_WINDOW_CONTENTS if packed else PLAIN_WINDOW_CONTENTS),
            window_bytes=window_bytes or READER_WINDOW,
            incarnation=incarnation,
            log_epoch=log_epoch,
            until_epoch=until_epoch,
            skip_lost=skip_lost,
            local=packed and self._sees_files,
            confirm=confirm or self._usual_confirm,
        )
        part = LogReaderPart if extended else RfcReaderPart
        return self._open_reader(lambda loop, channel: part(loop, channel, options))

    @checked
    def consumer(
        self,
        resources: str | Iterable[str] = (),
        *,
        queue: str | None = None,
        start: Literal["earliest", "latest"] | int | None = None,
        window_contents: int = CONSUMER_WINDOW_CONTENTS,
        window_bytes: int = READER_WINDOW,
        confirm: Confirm = "full",
    ) -> ConsumerT:
        """Open a consumer: a queue gives every content of these resources to one of its consumers, which answers it.

            with connection.consumer("jobs") as consumer:
                for content in consumer:
                    work(content.body)
                    content.confirm()

        The consumer uses profile `queue`, regardless of the connection's profile. The result is a context manager.

        - `resources`: one name or several. Default: none; the consumer names them later (`Consumer.summon`).
        - `queue`: the queue's name; a resource has any number of queues. Default: the queue `default`. The first
          consumer creates it.
        - `start`: where a queue begins that the consumer creates: "earliest", "latest" or a sequence. Default:
          "earliest".
        - `window_contents`: contents that may be delivered and not answered. Default: 100.
        - `window_bytes`: the same in octets. Default: 33,554,432.
        - `confirm`: "full" or "none"; with "none" contents are settled when they are sent: at most once. Default:
          "full".

        Raises `Refused` (404 no such resource), `DataLoss`, `NotGranted`.
        """
        names, extended = tuple(listed(resources)), self._has_extensions
        if not extended and (queue is not None or start is not None):
            raise self._unknown_to_the_rfc("names of queues or a start")
        options = ConsumerOptions(names, queue, start, window_contents, window_bytes, confirm, extended)
        profile = "queue" if extended else self.settings.profile
        return self._open_consumer(lambda loop, channel: ConsumerPart(loop, channel, options), profile)

    @checked
    def writer(
        self,
        resources: str | Iterable[str],
        *,
        name: str | None = None,
        packed: bool = False,
        stage: control.StageSpec | None = None,
        window_contents: int | None = None,
        window_bytes: int | None = None,
        incarnations: dict[str, str] | None = None,
        confirm: Confirm | None = None,
    ) -> WriterT:
        """Open a writer to one resource, or to several; with several, each `send` names one.

            with connection.writer("orders", name="shop-7") as writer:
                writer.send(b"...")
                writer.flush()  # everything sent so far is durable

        The result is a context manager.

        - `name`: the broker remembers publishing numbers under it, so that contents sent again are not duplicated, even
          after a restart of the broker. Numbers continue after those of the last writer of the name (`Writer.last`); an
          older writer that is still open is fenced. Default: a new `own_name`.
        - `packed`: whether the writer has `send_pack`, and packs the contents of `send`. Default: no.
        - `stage`: a `StageSpec`; contents stay invisible until `stage_commit` of the stage from `Writer.seal`. Excludes
          `name`. Default: contents are visible as soon as they are durable.
        - `window_contents`: contents that may be sent and not confirmed. Default: 200,000.
        - `window_bytes`: the same in octets. Default: 16,777,216.
        - `incarnations`: of the resources, by name, from `Description`s; another one is refused. Default: the present
          ones.
        - `confirm`: "full" or "none"; with "none" losses are not detected. Default: "full"; "none" in profile `test`.

        Raises `Refused` (404 no such resource, 409 another incarnation), `NotGranted`, `OptionError` for arguments that
        contradict each other.
        """
        extended = self._extended
        if not extended and (packed or stage is not None or name is not None):
            raise self._unknown_to_the_rfc("names, stages or packed contents")
        if stage is not None and name is not None:
            raise OptionError("a writer with a stage cannot have a name: its numbers belong to the stage")
        names = tuple(listed(resources))
        confirm = confirm or self._usual_confirm
        if name is None and stage is None and extended and confirm == "full":
            name = own_name(self._greeting(), uuid4().hex)
        options = WriterOptions(
            resources=names,
            name=name,
            packed=packed,
            stage=stage,
            window_contents=window_contents or WRITER_WINDOW_CONTENTS,
            window_bytes=window_bytes or WRITER_WINDOW,
            incarnations=incarnations,
            extended=extended,
            confirm=confirm,
            holder=uuid4().hex if name is not None else None,
        )
        return self._open_writer(lambda loop, channel: WriterPart(loop, channel, options))

    # --- what the connections differ in ---------------------------------------------------------------------

    @abstractmethod
    def _greeting(self) -> control.Ready:
        """The broker's 201 reply."""

    @abstractmethod
    def _open_reader(self, make: Callable[[Loop, Channel], ReaderPart]) -> ReaderT:
        """Make the loop's part, and request its lease."""

    @abstractmethod
    def _open_consumer(self, make: Callable[[Loop, Channel], ConsumerPart], profile: str) -> ConsumerT:
        """The same for a consumer, in a session of this profile."""

    @abstractmethod
    def _open_writer(self, make: Callable[[Loop, Channel], WriterPart]) -> WriterT:
        """The same for a writer."""

    # --- what the broker has --------------------------------------------------------------------------------

    @property
    def _has_extensions(self) -> bool:
        """Whether the server implements PROTOCOL.md, not only the RFC: then sessions have tokens (section 2)."""
        return self._greeting().session is not None

    @property
    def _extended(self) -> bool:
        """Whether requests may have members beyond the RFC's, which the broker echoes if it grants them."""
        return self.settings.profile.lower() != _TEST and self._has_extensions

    @property
    def _usual_confirm(self) -> Confirm:
        """The model "full" is the only way to detect losses. Profile `test` has no confirmation."""
        return "none" if self.settings.profile.lower() == _TEST else "full"

    def _unknown_to_the_rfc(self, feature: str) -> OptionError:
        profile = f'profile "{self.settings.profile}"'
        if self.settings.profile.lower() == _TEST:
            return OptionError(f"{profile} has no {feature}")
        server = f"the server at {self.settings.endpoint} implements RFC 11 only (it gives no session token)"
        return OptionError(f"{server}: its {profile} has no {feature}")
