"""Rate-limited logging, and escaping of text from other nodes for logs and terminals.

Escaped text cannot start a new line or control a terminal. Log lines that a peer can cause without
limit are rate-limited, and the next line reports how many were omitted. Each log record names its
event in `extra=`; event names are stable (docs/reference/log-events.md).
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from parley._node.protocol.rate_limit import Rate, TokenBucket

# Lines of one kind that requests can cause: the burst, and the rate per second after it.
LINES: Final = 100
LINES_PER_SECOND: Final = 1.0


def one_line(text: str) -> str:
    """Escape line ends and other control characters."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def visible(text: str) -> str:
    """Escape all control characters except tabs and line ends."""
    if text.isprintable():
        return text
    return "\n".join("\t".join(map(one_line, line.split("\t"))) for line in text.split("\n"))


def needs_extra(what: str, extra: str) -> str:
    """Return the sentence that tells the user which extra to install."""
    return (
        f"{what} needs the extra {extra!r}: pip install 'parley-node[{extra}]', "
        f"or in a clone: uv run --extra {extra}"
    )


@contextmanager
def extra_required(what: str, extra: str) -> Iterator[None]:
    """Wrap the imports of an optional dependency.

    Raises:
        ModuleNotFoundError: it isn't installed; the text names the extra to install.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("parley"):
            raise
        text = needs_extra(f"{what} ({error.name})", extra)
        raise ModuleNotFoundError(text, name=error.name) from error


class RateLimitedLogger:
    """Limits log lines to a burst of `burst` and then `per_second` per second.

    `silent` counts the lines omitted since the last one that was logged.
    """

    __slots__ = ("_allowance", "silent")

    def __init__(self, burst: int = LINES, per_second: float = LINES_PER_SECOND) -> None:
        self._allowance = TokenBucket(Rate(burst, 1 / per_second))
        self.silent = 0

    def allows(self, now: float) -> bool:
        """Count one line; return whether it may be logged or must be omitted.

        `now` is the time in seconds of a monotonic clock.
        """
        if self._allowance.take(now):
            return True
        self.silent += 1
        return False

    def log(
        self,
        logger: logging.Logger,
        level: int,
        now: float,
        message: str,
        *words: object,
        extra: Mapping[str, object],
        exc_info: bool = False,
    ) -> None:
        """Log a line, unless the limit is exceeded. `extra` includes the name of the event."""
        if logger.isEnabledFor(level) and self.allows(now):
            silent = self.take_left_out()
            more = f" ({silent} more such lines were not logged)" if silent else ""
            told = {**extra, "left_out": silent} if silent else extra
            logger.log(level, message + more, *words, exc_info=exc_info, extra=told)

    def take_left_out(self) -> int:
        """Return the number of omitted lines and reset it."""
        silent, self.silent = self.silent, 0
        return silent
