"""The log of a command: lines on standard error, as text or JSON.

A JSON line is an object with `time` (UTC, microseconds), `level`, `logger`, `event`, `text`, the
event's own fields (docs/reference/log-events.md), and a `traceback` if there is an error. Lines of
other libraries have the event `other`.
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

# Attributes of every record. All others were passed with `extra=`.
_USUAL: Final = vars(logging.makeLogRecord({})).keys() | {"message", "asctime"}
OTHER: Final = "other"
ACCESS: Final = "parley.access"
RELOAD: Final = "parley.settings"


def set_up_logging(
    level: str,
    form: str = "text",
    *,
    access: bool = False,
    requests: bool = False,
    follow: bool = True,
) -> None:
    """Log to standard error from `level` up, in the `form` "text" or "json". `follow` is as for
    `Petnames`.

    With `access`, the access log is included whatever the level; with `requests`, also each
    answered request.

    Raises:
        ConfigError: an unknown level or form.
    """
    if form not in LOG_FORMATS:
        raise ConfigError(f"invalid --log-format {form!r}: expected {' or '.join(LOG_FORMATS)}")
    if level.lower() not in LOG_LEVELS:
        raise ConfigError(
            f"invalid --log-level {level!r}: expected {', '.join(LOG_LEVELS[:-1])} or "
            f"{LOG_LEVELS[-1]}"
        )
    handler = _ToStderr()
    text = _OneLine("%(asctime)s %(levelname)-7s %(name)s: %(message)s", follow=follow)
    handler.setFormatter(JsonLines() if form == "json" else text)
    logging.basicConfig(handlers=[handler])
    change_level(level, access=access, requests=requests)


def change_level(level: str, *, access: bool, requests: bool = False) -> None:
    """Change the levels; the arguments are those of `set_up_logging`."""
    logging.getLogger().setLevel(level.upper())
    own = logging.INFO if access else logging.NOTSET
    logging.getLogger(ACCESS).setLevel(logging.DEBUG if requests else own)
    # The result of a reload is always logged, because an operator has requested it.
    logging.getLogger(RELOAD).setLevel(logging.INFO)
    # coredis logs a traceback for a failed connection, which the bus reports in one line.
    debugs = level.lower() == "debug"
    logging.getLogger("coredis").setLevel(logging.NOTSET if debugs else logging.CRITICAL)


class JsonLines(logging.Formatter):
    """Formats a record as a JSON object in ASCII, so that remote text cannot control a terminal."""

    def format(self, record: logging.LogRecord) -> str:
        own = {
            name: _encode_node_id(value)
            for name, value in vars(record).items()
            if name not in _USUAL
        }
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
        # Another library may use one of these names for a field of its own.
        return json.dumps(to_json_value(line | own | line), default=str)


def _encode_node_id(value: object) -> object:
    return str(value) if isinstance(value, NodeId) else value


class _ToStderr(logging.Handler):
    """Writes to the current sys.stderr, which a progress bar temporarily replaces."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


class _OneLine(logging.Formatter):
    """Formats a message as one line and a traceback as indented lines, without control characters,
    because they may contain text of another node.
    """

    def __init__(self, form: str, *, follow: bool) -> None:
        super().__init__(form)
        self._petnames = Petnames.of_home(follow=follow)

    def format(self, record: logging.LogRecord) -> str:
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
