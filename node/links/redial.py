"""`Redial`: keeps something dialled: pauses that grow between attempts, and a stop that waits
until nothing is left.

Whatever is dialled again stands on it: links, forwards, clients of other dialects.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from parley._crypto.randomness import random_bytes
from parley._node.backoff import Pauses
from parley._node.errors import (
    CallRefused,
    ConfigError,
    HandshakeError,
    ParleyError,
    PeerClosedError,
)
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.protocol.errors import ProtocolError
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import Changes, pause_until
from parley._node.transport.task_scope import Job

logger = logging.getLogger("parley.link")

_FRACTION_SIZE: Final = 6  # bytes

# What an attempt does: it dials and uses what it has dialled until that is over, and returns why
# it is over, or raises that.
Attempt = Callable[[], Awaitable[Exception]]
# Told of each end: why, and in how many seconds the next attempt is.
Told = Callable[[Exception, float], None]

# What ends in this way does so again until somebody has changed a setting.
_LASTING: Final = frozenset(
    {
        CloseCode.NO_COMMON_ALGORITHM,
        CloseCode.UNSUPPORTED_VERSION,
        CloseCode.PLAINTEXT_REFUSED,
        CloseCode.AUTHENTICATION_FAILED,
        CloseCode.PEER_NOT_TRUSTED,
    }
)


def random_fraction() -> float:
    """A random number from 0 to 1, excluding 1."""
    return int.from_bytes(random_bytes(_FRACTION_SIZE)) / 2.0 ** (8 * _FRACTION_SIZE)


def is_lasting(error: Exception) -> bool:
    """Whether dialling again soon would be in vain: the other side is another node, one side does
    not trust the other or gives it no account, the two have nothing in common, or a setting is
    wrong."""
    if isinstance(error, CallRefused):
        return error.code == ResultCode.NOT_AUTHORISED
    if isinstance(error, HandshakeError | PeerClosedError):
        return error.code in _LASTING
    return isinstance(error, ConfigError)


class Redial:
    """Makes attempts in a task of its own, one at a time, from `begin` to `stop`.

    `failures` counts attempts in a row whose connection did not hold for `pauses.steady`. After
    what `is_lasting` the pause is the longest at once. `over` is called when it makes no more.
    """

    def __init__(
        self,
        attempt: Attempt,
        told: Told,
        *,
        over: Callable[[], None] = lambda: None,
        pauses: Pauses | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> None:
        self.failures = 0
        self._attempt = attempt
        self._told = told
        self._tell_over = over
        if pauses is not None and not isinstance(pauses, Pauses):
            raise ConfigError(f"pauses is {pauses!r}; it must be a Pauses")
        self._pauses = pauses or Pauses()
        self._draw = draw
        self._established: float | None = None
        self._loop: Backend | None = None
        self._job: Job | None = None
        self._finishing = False
        self._at_once = False
        self._changes = Changes(lambda: self._running().waiter())

    @property
    def is_over(self) -> bool:
        """Whether it makes no more attempts, or none yet: before `begin`, after `stop`, or since
        its loop ended."""
        return self._job is None or not self._job.running

    def begin(self, loop: Backend) -> None:
        """Start to dial; ParleyError if it has started already."""
        if not self.is_over:
            raise ParleyError("it is dialling already")
        self._loop, self.failures = loop, 0
        self._finishing, self._established = False, None
        self._job = Job(loop, self._changes)
        self._job.start(self._run)

    def established(self) -> None:
        """The attempt that runs has its connection."""
        self._established = self._running().now()

    def hurry(self) -> None:
        """End the pause, if there is one: dial now."""
        self._at_once = True
        self._changes.notify()

    def finish(self) -> None:
        """Make no more attempts; one that has its connection goes on to its own end."""
        self._finishing = True
        if self._established is None:
            self.cancel()

    def cancel(self) -> None:
        """Make no more attempts, and end the one that runs."""
        if self._job is not None:
            self._job.cancel()

    async def rest(self, why: Exception) -> None:
        """Pause as after an attempt that ended because of `why`; for an attempt that dials more
        than once. What it had counts as its connection no more."""
        seconds = self._seconds(why)
        self._at_once = False
        self._told(why, seconds)
        self._established = None
        await pause_until(self._running(), seconds, self._changes, lambda: self._at_once)

    async def stop(self) -> None:
        """`cancel`, and wait until nothing of it runs; a cancellation does not shorten that."""
        if self._job is not None:
            with anyio.CancelScope(shield=True):
                await self._job.end()

    # Inside.

    def _running(self) -> Backend:
        if self._loop is None:
            raise ParleyError("it was not begun")
        return self._loop

    async def _run(self) -> None:
        try:
            while True:
                why = await self._try()
                if self._finishing:
                    return
                await self.rest(why)
        finally:
            self._finishing = True
            self._tell_over()

    async def _try(self) -> Exception:
        try:
            return await self._attempt()
        except (ParleyError, ProtocolError) as error:
            return error
        except Exception as error:
            # A bug must not end what is kept, and its traceback must not be lost.
            logger.exception("an attempt failed", extra={"event": "link.bug"})
            return ParleyError(f"it failed: {type(error).__name__}")

    def _seconds(self, why: Exception) -> float:
        established, steady = self._established, self._pauses.steady
        held = established is not None and self._running().now() - established >= steady
        self.failures = 1 if held else self.failures + 1
        if is_lasting(why):
            return self._pauses.longest * (1.0 + self._draw()) / 2.0
        return self._pauses.after(self.failures, self._draw())
