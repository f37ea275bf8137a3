"""Retries of store operations: transient errors only, with backoff and rate-limited log lines."""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from parley._crypto.randomness import random_bytes
from parley._node.backoff import Backoff
from parley._node.bus.errors import BusBusyError, BusError, BusFullError, BusUnavailableError
from parley._node.bus.model import NewEvent, Published
from parley._node.bus.store import Store
from parley._node.errors import ConfigError
from parley._node.logs import RateLimitedLogger, one_line
from parley._node.protocol.config_types import require_number
from parley._node.transport.conditions import pause
from parley._node.transport.loop import Loop

logger = logging.getLogger("parley.bus")

T = TypeVar("T")

# Errors that can disappear without intervention.
TRANSIENT: Final = (BusUnavailableError, BusBusyError, BusFullError)
PAUSES: Final = Backoff(first=0.1, longest=10.0)
# Log lines for the failures of one consumer: the burst, and the rate in lines per second.
LINES: Final = 2
LINES_PER_SECOND: Final = 1 / 60


def jitter() -> float:
    """Return a random fraction, 0 to 1."""
    return random_bytes(1)[0] / 255


class StoreRetry:
    """The retries of one consumer. `what` names it in the log."""

    __slots__ = ("_lines", "_loop", "_pauses", "_what", "failures")

    def __init__(self, loop: Loop, what: str, pauses: Backoff = PAUSES) -> None:
        self._loop = loop
        self._what = what
        self._pauses = pauses
        self._lines = RateLimitedLogger(LINES, LINES_PER_SECOND)
        self.failures = 0  # Consecutive failures.

    async def run_with_retries(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Return the result of `ask`, called until it does not raise a transient error.

        Raises:
            BusError: the error is not transient.
        """
        while True:
            try:
                answer = await ask()
            except TRANSIENT as error:
                await self.wait(error)
            else:
                self.failures = 0
                return answer

    async def wait(self, error: BusError) -> None:
        """Log a failure and wait before the next attempt."""
        self.failures += 1
        self.log_error(error)
        await pause(self._loop, self._pauses.delay(self.failures, jitter()))

    def log_error(self, error: BusError) -> None:
        """Log an error, rate-limited."""
        if self._lines.allows(self._loop.now()):
            left_out = self._lines.take_left_out()
            more = f" ({left_out} similar lines were not logged)" if left_out else ""
            logger.warning(
                "%s: %s%s",
                self._what,
                one_line(str(error)),
                more,
                extra={"event": "bus.unavailable"},
            )


async def publish_again(
    opened: Callable[[], Awaitable[Store]],
    loop: Loop,
    event: NewEvent,
    *,
    durable: bool,
    timeout: float,
) -> Published:
    """Publish an event that has an idempotency key; retry while the store is unavailable.

    Retries end after `timeout` seconds.

    Raises:
        BusUnavailableError: the outcome of an attempt is unknown.
        BusError: the event was not stored.
        ConfigError: the timeout is out of range.
    """
    require_number("timeout", timeout, finite=True, error=ConfigError)
    deadline, failures = loop.now() + timeout, 0
    unknown: BusUnavailableError | None = None
    while True:
        try:
            (published,) = await (await opened()).publish((event,), durable=durable)
        except BusUnavailableError as error:
            failures, unknown = failures + 1, error
            seconds = PAUSES.delay(failures, jitter())
            if loop.now() + seconds > deadline:
                raise
            logger.info(
                "retrying to publish %s: %s",
                event.name,
                one_line(str(error)),
                extra={"event": "bus.publish-retried", "stream": event.name},
            )
            await pause(loop, seconds)
        except BusError as error:
            if unknown is None:
                raise
            # This attempt stored nothing, but the outcome of the earlier one is unknown.
            raise BusUnavailableError(f"{unknown}; the retry failed: {error}") from error
        else:
            return published
