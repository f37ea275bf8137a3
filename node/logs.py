"""What goes into logs and onto screens: another node's text, escaped, and a ration of lines.

What another node says never begins a line or steers a terminal, and what it can cause without
end is rationed: how many lines were left out is said with the next one. Each line says with
`extra=` which event it tells of, a name that stays (docs/reference/log-events.md).
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from parley._node.protocol.rate_limit import Rate, TokenBucket

# Of what requests cause, of one kind: lines at once, and from then on for each second.
LINES: Final = 100
LINES_PER_SECOND: Final = 1.0


def one_line(text: str) -> str:
    """The text with its line ends and other control characters escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def visible(text: str) -> str:
    """Escape all control characters except tabs and line ends."""
    if text.isprintable():
        return text
    return "\n".join("\t".join(map(one_line, line.split("\t"))) for line in text.split("\n"))


def needs_extra(what: str, extra: str) -> str:
    """Return the sentence that says which extra to install."""
    return (
        f"{what} needs the extra {extra!r}: pip install 'parley-node[{extra}]', "
        f"or in a clone: uv run --extra {extra}"
    )


@contextmanager
def extra_required(what: str, extra: str) -> Iterator[None]:
    """Import what an extra installs inside the block.

    Raises:
        ModuleNotFoundError: it isn't installed; the text says which extra to install.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("parley"):
            raise
        text = needs_extra(f"{what} ({error.name})", extra)
        raise ModuleNotFoundError(text, name=error.name) from error


class RateLimitedLogger:
    """`burst` lines at once, `per_second` for each second; `silent` were left out since the
    last that had room."""

    __slots__ = ("_allowance", "silent")

    def __init__(self, burst: int = LINES, per_second: float = LINES_PER_SECOND) -> None:
        self._allowance = TokenBucket(Rate(burst, 1 / per_second))
        self.silent = 0

    def allows(self, now: float) -> bool:
        """Whether a line may be written, which is counted; or left out, which is too.

        `now` is seconds of a clock that never goes back, the same for all calls.
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
        """Log a line if there is room; with the exception that is being handled, if wanted.

        `extra` has its `event`, and what else is told of it.
        """
        if logger.isEnabledFor(level) and self.allows(now):
            silent = self.take_left_out()
            more = f" ({silent} more such lines were not logged)" if silent else ""
            told = {**extra, "left_out": silent} if silent else extra
            logger.log(level, message + more, *words, exc_info=exc_info, extra=told)

    def take_left_out(self) -> int:
        """How many were left out; they are told now."""
        silent, self.silent = self.silent, 0
        return silent
