"""The log of a command: lines on standard error, as text or JSON.

In JSON each line is an object with `time` (UTC, to the microsecond), `level`, `logger`, `event`
and `text`, the event's own fields (docs/reference/log-events.md), and the `traceback` of an error.
Lines of other libraries have the event `other`.
"""

import json
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

from parley._crypto.identity import NodeId
from parley._node.cli.output import to_json_value
from parley._node.errors import ConfigError
from parley._node.logs import one_line, visible
from parley._node.settings.tables import LOG_FORMATS, LOG_LEVELS
from parley._node.trust.petnames import Petnames

# What every record has; anything else came with `extra=`.
_USUAL: Final = vars(logging.makeLogRecord({})).keys() | {"message", "asctime"}
OTHER: Final = "other"
ACCESS: Final = "parley.access"
RELOAD: Final = "parley.settings"


def set_up_logging(
    level: str, form: str = "text", *, access: bool = False, requests: bool = False
) -> None:
    """Logs go to standard error, from `level` up, one line for each message, in the `form` "text"
    or "json". With `access` the access log is there from info up, whatever the level; with
    `requests` from debug up, which includes each answered request.

    Raises:
        ConfigError: there is no such level or form.
    """
    if form not in LOG_FORMATS:
        raise ConfigError(f"--log-format {form}: {' or '.join(LOG_FORMATS)}")
    if level.lower() not in LOG_LEVELS:
        raise ConfigError(f"--log-level {level}: {', '.join(LOG_LEVELS[:-1])} or {LOG_LEVELS[-1]}")
    handler = _ToStderr()
    text = _OneLine("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonLines() if form == "json" else text)
    logging.basicConfig(handlers=[handler])
    change_level(level, access=access, requests=requests)


def change_level(level: str, *, access: bool, requests: bool = False) -> None:
    """Log from this level up from now on, as `set_up_logging` has it."""
    logging.getLogger().setLevel(level.upper())
    own = logging.INFO if access else logging.NOTSET
    logging.getLogger(ACCESS).setLevel(logging.DEBUG if requests else own)
    # An operator asked for a reload, and its result is logged whatever the level.
    logging.getLogger(RELOAD).setLevel(logging.INFO)
    # Of a connection that fails it logs a traceback; the bus says it in a sentence.
    debugs = level.lower() == "debug"
    logging.getLogger("coredis").setLevel(logging.NOTSET if debugs else logging.CRITICAL)


class JsonLines(logging.Formatter):
    """A record as one JSON object in ASCII, so that no text of another node steers a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """The object, without the line's end."""
        own = {name: _said(value) for name, value in vars(record).items() if name not in _USUAL}
        time = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, Any] = {
            "time": f"{time:%Y-%m-%dT%H:%M:%S.%fZ}",
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": own.pop("event", OTHER),
            "text": record.getMessage(),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        # Another library may call a field of its own like one of these.
        return json.dumps(to_json_value(line | own | line), default=str)


def _said(value: object) -> object:
    """A node id as it is written everywhere; it is bytes, too."""
    return str(value) if isinstance(value, NodeId) else value


class _ToStderr(logging.Handler):
    """Writes to what standard error is by then: a bar puts itself in its place while it moves,
    and is torn by what passes it by."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


class _OneLine(logging.Formatter):
    """One line for each message, and indented lines for a traceback: neither a message nor the text
    of an exception, which may quote another node, can begin a line or steer a terminal."""

    def __init__(self, form: str) -> None:
        super().__init__(form)
        self._petnames = Petnames.of_home()

    def format(self, record: logging.LogRecord) -> str:
        """The lines, without the last one's end."""
        record.message = record.getMessage()
        record.asctime = self.formatTime(record)
        lines = [one_line(self._petnames.in_text(self.formatMessage(record)))]
        if record.exc_info:
            lines += _indented(self.formatException(record.exc_info))
        if record.stack_info:
            lines += _indented(self.formatStack(record.stack_info))
        return "\n".join(lines)


def _indented(text: str) -> Iterator[str]:
    return (f"    {visible(line)}" for line in text.split("\n"))
