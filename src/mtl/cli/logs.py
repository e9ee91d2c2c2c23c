"""Writes log lines on standard error: text or JSON; one line per record, also if it contains line ends.

Logging does not wait for the reader of the lines (`queued_output`). Lines of the audit log have a reserve of their own
there, so that other lines cannot displace them.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from mtl.cli.queued_output import QueuedOutput
from mtl.wire.visible import printable, printable_json

log = logging.getLogger("mtl.log")

_AUDIT = "mtl.audit"
"""The logger of mtl.broker.access.audit, which a door need not load."""


class Level(StrEnum):
    """Lines of this level and above are written."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class Format(StrEnum):
    """The format of log lines."""

    TEXT = "text"
    JSON = "json"


LogLevel = Annotated[
    Level | None, typer.Option(help="Write log lines of this level and above.  [default: info]")
]
LogFormat = Annotated[
    Format | None, typer.Option(help="Write log lines as text or as one JSON object each.  [default: text]")
]


class TextFormatter(logging.Formatter):
    """Formats lines as text. Control characters are escaped, since lines contain names from clients. A traceback has
    several lines.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 the base class names it
        """See the class."""
        return printable(super().formatMessage(record))


class JsonFormatter(logging.Formatter):
    """Formats lines as JSON: time (UTC, µs), level, logger, and the message, or the members of an audit line."""

    def format(self, record: logging.LogRecord) -> str:
        """See the class."""
        fields = getattr(record, "fields", None)
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            **(fields if fields is not None else {"message": record.getMessage()}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return printable_json(msgspec.json.encode(line).decode())


_FORMATTERS = {Format.TEXT: TextFormatter, Format.JSON: JsonFormatter}


class QueuedLines(logging.Handler):
    """Puts lines into a queued output."""

    def __init__(self, output: QueuedOutput) -> None:
        super().__init__()
        self._output = output
        output.report = self._report

    def emit(self, record: logging.LogRecord) -> None:
        """See the base class."""
        try:
            self._output.put(f"{self.format(record)}\n", reserved=record.name == _AUDIT)
        except Exception:  # noqa: BLE001 as in every handler of the library: a wrong call of `log` is reported
            self.handleError(record)

    def _report(self, lines: int, audit: int) -> str:
        message = (
            f"{lines} lines were dropped here, {audit} of them of the audit log: nobody read standard error, or it "
            "could not be written"
        )
        record = log.makeRecord(log.name, logging.WARNING, __file__, 0, message, (), None)
        record.fields = {"message": message, "dropped": lines, "dropped-audit": audit}
        return f"{self.format(record)}\n"


def write_lines(output: QueuedOutput, level: str, form: str) -> None:
    """Write the lines of this level and above to an output from now on, in this format."""
    handler = QueuedLines(output)
    handler.setFormatter(_FORMATTERS[Format(form)]())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
