"""Every error of the project, as one tree. The type says which side caused the error.

MtlError
├── Malformed             the peer sent bytes that are not a command: dropped and counted, never answered
├── Refused               a well-formed request that is invalid: status, reason and message; the broker
│   │                     answers with it, the client raises it
│   ├── Fenced            a newer holder or writer took over; terminal, never retried
│   └── DataLoss          requested contents are gone, with the range and the count
├── Unreachable           no answer within the bounded wait
├── ClientFailed          a defect of the client ended a connection
├── BadBody               a content's body is not of the format or schema that a query expects
├── NotGranted            the broker's 202 does not echo a requested member: it does not know the member
├── LocalError            our own caller's mistake
│   ├── OptionError       an option is unknown, misspelt or has a value that does not fit
│   ├── FieldError        a name or value that no field, property or request member can hold
│   ├── OffsetError       an offset of a checkpoint that is not this connector's, or does not follow the one before
│   ├── SchemaError       the columns of a DataFrame do not fit
│   ├── SparkMissing      PySpark is not installed, or too old
│   ├── ContentTooLarge   larger than the limit that the broker announced
│   ├── ContentRefused    the broker rejected a content for good
│   └── Closed            used after it was closed
└── StorageError          the disk, or the files on it
    ├── DirectoryInUse    another broker holds the data directory
    ├── UnknownFormat     written in a format that this version does not read
    ├── OldRecords        the broker's records are an older copy than the last one
    ├── Damaged           bytes that were durable once no longer verify
    ├── StorageFull       no space left
    └── StorageFailed     a write or sync failed
        └── LogStopped    the failure stopped a log: it accepts no contents until the broker restarts
"""

from __future__ import annotations

from typing import Any, Self


class MtlError(Exception):
    """The root of the tree above. Errors can be pickled and copied: a process pool pickles them."""

    def __reduce__(self) -> tuple[Any, ...]:
        """How to make an equal error. `args` are not the arguments of a subclass's constructor, so it is not called."""
        return _again, (type(self), self.args), vars(self)


class Malformed(MtlError):
    """Bytes that are not a command of the protocol (RFC 11: silently dropped; MTL-50, 51, 110, 111)."""


class Refused(MtlError):
    """A well-formed request that the broker refuses (MTL-52).

    `status` is the three-digit code (PROTOCOL.md 2), `reason` a stable slug for programs, `message` a
    sentence for people, `members` further facts for the client.
    """

    def __init__(self, status: int, reason: str, message: str = "", **members: Any) -> None:
        super().__init__(f"{status} {reason}: {message}" if message else f"{status} {reason}")
        self.status = status
        self.reason = reason
        self.message = message
        self.members = members


class Fenced(Refused):
    """Another holder of the group (or another writer of the name) took over. Terminal: never re-acquire by yourself."""

    def __init__(self, message: str, **members: Any) -> None:
        super().__init__(409, "fenced", message, **members)


class DataLoss(Refused):
    """Contents [first, end) of `resource` were requested and are gone.

    A reader that accepts the loss continues at `resume`. This is `end` (the default) after contents that retention
    removed, and `first` if the log is another copy, because no reader has seen its contents from `first` on
    (PROTOCOL.md 5.1.1).
    """

    def __init__(
        self, resource: str, first: int, end: int, message: str = "", *, resume: int | None = None
    ) -> None:
        count = max(0, end - first)
        text = message or (
            f"resource {resource!r}: contents {first} to {end - 1} ({count} in all) are gone: "
            "retention removed them, a write replaced them, or the resource was deleted and created again"
        )
        self.resume = end if resume is None else resume
        place = {} if resume is None else {"from": resume}
        super().__init__(
            409, "data-loss", text, resource=resource, first=first, end=end, count=count, **place
        )
        self.resource = resource
        self.first = first
        self.end = end
        self.count = count


class Unreachable(MtlError):
    """No answer from `endpoint` within `waited` seconds. `denied`: a peer answered, but the CURVE handshake failed.
    `sent_back`: the broker answered, but asked for all contents again.
    """

    def __init__(
        self, endpoint: str, waited: float, doing: str, *, denied: bool = False, sent_back: bool = False
    ) -> None:
        problem = "no answer from"
        hint = (
            "check the endpoint, and that a server runs there (`mtl broker`, `mtl door`); if it may be down for "
            "longer, give a longer deadline (retryDeadline, retry_deadline)"
        )
        if denied:
            hint = (
                "a server listens there, but the CURVE handshake fails: check the broker's public key, whether it uses "
                "CURVE, and whether it accepts your key"
            )
        elif sent_back:
            problem = "no content was stored by the broker at"
            hint = (
                "it requests the contents repeatedly, as it does while its disk is full or fails: `mtl resource "
                "describe`, `mtl stages list` and its log show the cause; if this may last longer, give a longer "
                "deadline (retryDeadline, retry_deadline)"
            )
        super().__init__(f"{problem} {endpoint} within {waited:.1f} s ({doing}); {hint}")
        self.endpoint = endpoint
        self.waited = waited


class ClientFailed(MtlError):
    """An exception that the client did not expect has ended the connection to `endpoint`, and no other one."""

    def __init__(self, endpoint: str, error: Exception) -> None:
        super().__init__(
            f"the connection to {endpoint} has ended by an unexpected {type(error).__name__} in the client: {error}. "
            "Other connections continue; open this one again. The log `mtl.client` has the traceback: please report it"
        )
        self.endpoint = endpoint


class BadBody(MtlError):
    """The body of a content does not match `bodyFormat` and the schema."""

    def __init__(self, resource: str, sequence: int, bad: str, why: str) -> None:
        super().__init__(
            f"content {sequence} of resource {resource!r} is not {bad} of the schema: {why}. "
            "With mode=PERMISSIVE its row is nulls, with DROPMALFORMED it has none; deadLetter keeps it"
        )
        self.resource = resource
        self.sequence = sequence


class NotGranted(MtlError):
    """The broker granted a lease without echoing `member`, so it may not honour that member (PROTOCOL.md 5.2)."""

    def __init__(self, endpoint: str, member: str) -> None:
        super().__init__(
            f"the broker at {endpoint} granted the lease but did not confirm `{member}`: it is another broker, or an "
            "older one, that does not know this member of the `log` profile"
        )
        self.member = member


class LocalError(MtlError):
    """The calling program's mistake; nothing was sent."""


class OptionError(LocalError, ValueError):
    """An option that is unknown, misspelt, contradicts another, or has a value that does not fit."""


class FieldError(LocalError, ValueError):
    """A value of the caller that has no encoding: a type or size that a field, short string or request cannot hold."""


class OffsetError(LocalError, ValueError):
    """An offset that this connector did not write, that a newer one wrote, or that does not follow from its start."""


class SchemaError(LocalError, ValueError):
    """The columns of a DataFrame are not the columns of a content."""


class SparkMissing(LocalError, ImportError):
    """PySpark cannot be imported, or is older than the Data Source API that the connector is built on."""


class ContentTooLarge(LocalError, ValueError):
    """A content or pack above the limit that the broker announced; `size` and `limit` are in `unit`s."""

    def __init__(self, size: int, limit: int, what: str = "content", unit: str = "octets") -> None:
        super().__init__(f"a {what} of {size} {unit} is above the broker's limit of {limit}; split it")
        self.size = size
        self.limit = limit


class ContentRefused(LocalError):
    """The broker rejected the contents up to `sequence` for good (Reject without recycle)."""

    def __init__(self, resource: str, sequence: int, message: str = "") -> None:
        super().__init__(
            f"the broker refused content {sequence} for {resource!r} for good{': ' if message else ''}{message}"
        )
        self.resource = resource
        self.sequence = sequence


class Closed(LocalError):
    """The connection, reader or writer is closed."""


class StorageError(MtlError):
    """An error of the disk, or of the files on it."""


class DirectoryInUse(StorageError):
    """Another broker process holds the lock of the data directory."""


class UnknownFormat(StorageError):
    """The data directory was written in a format that this version does not read: by a newer version, or before the
    first release.
    """

    @classmethod
    def of(cls, path: str, version: int, known: int) -> Self:
        """The error for a file at `path` in the format `version`, where this version knows `known`."""
        if version > known:
            return cls(
                f"{path} was written by a newer version of this software (format {version}, this one knows {known}); "
                "use that version, this one would damage the data"
            )
        return cls(
            f"{path} has format {version}, from before the first release, which no release reads; use a new data "
            "directory, and copy the contents to it by means of the version that wrote this one"
        )


class OldRecords(StorageError):
    """The records (`broker.db`) are older than the last transaction: a copy was restored, or `broker.db-wal` is
    missing.

    A broker that started on them would forget commits, positions of groups and resources.
    """

    WAYS = (
        "There are two remedies: put the newest broker.db and its broker.db-wal in place, or accept these records with "
        "`mtl recover DIR --accept-records`, which lists what is affected"
    )


class Damaged(StorageError):
    """Bytes that were durable no longer verify. No data was dropped; the message names the place.

    `file` and `offset` (octets) say where, `first` and `end` (exclusive; None: up to the log's end) which sequences
    are affected, as far as that is known.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        offset: int | None = None,
        first: int | None = None,
        end: int | None = None,
    ) -> None:
        super().__init__(message)
        self.file = file
        self.offset = offset
        self.first = first
        self.end = end


class StorageFull(StorageError):
    """No space is left on the device; no content of the group was kept."""


class StorageFailed(StorageError):
    """A write or sync failed for another reason than space."""


class LogStopped(StorageFailed):
    """A failure after which the state of the disk is unknown: the log accepts no contents until it is opened again."""


def _again(kind: type[MtlError], args: tuple[Any, ...]) -> MtlError:
    error = kind.__new__(kind, *args)
    super(MtlError, error).__init__(*args)  # an ImportError sets its `msg`
    return error
