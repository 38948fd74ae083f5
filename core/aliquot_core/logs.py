"""One way to log: JSON lines for machines, plain lines for a person at a terminal.

Modules log through the standard library and hand facts over as `extra={...}`; both formats show them.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import IO, Annotated, Any, Literal

import msgspec

from aliquot_core.settings import UnusableValueError, of_kind

# What a record carries by itself; everything else on it is a fact that the caller handed over.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_encoder = msgspec.json.Encoder(enc_hook=str)


def _check_level(name: str) -> None:
    if name.upper() not in logging.getLevelNamesMapping():
        raise UnusableValueError("it is no level", remedy="write debug, info, warning or error")


class LogSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How much is logged, and in which form (`auto`: human on a terminal, JSON elsewhere)."""

    level: Annotated[str, of_kind(_check_level)] = "info"
    format: Literal["auto", "json", "human"] = "auto"


def facts(record: logging.LogRecord) -> dict[str, Any]:
    """What the caller handed over besides the sentence."""
    return {name: value for name, value in vars(record).items() if name not in _OWN}


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as JSON."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        } | facts(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return _encoder.encode(line).decode()


class HumanFormatter(logging.Formatter):
    """Time, level, sentence, facts."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a person reads it."""
        clock = datetime.fromtimestamp(record.created, UTC).strftime("%H:%M:%S.%f")[:-3]
        told = " ".join(f"{name}={value}" for name, value in facts(record).items())
        line = f"{clock} {record.levelname.lower():<7} {record.getMessage()}" + (f"  [{told}]" if told else "")
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logging(settings: LogSettings, *, stream: IO[str] | None = None) -> None:
    """Send the whole process's log to one stream."""
    out = sys.stderr if stream is None else stream
    human = settings.format == "human" or (settings.format == "auto" and out.isatty())
    handler = logging.StreamHandler(out)
    handler.setFormatter(HumanFormatter() if human else JsonFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(settings.level.upper())
