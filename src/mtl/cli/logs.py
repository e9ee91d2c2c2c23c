"""Writes log lines on standard error: text or JSON; one line per record, also if it contains line ends."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any

import msgspec
import typer

from mtl.cli.printable import printable, printable_json


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


def write_lines(level: str, form: str) -> None:
    """Write the lines of this level and above to standard error from now on, in this format."""
    handler = logging.StreamHandler()
    handler.setFormatter(_FORMATTERS[Format(form)]())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
