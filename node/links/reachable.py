"""`Reachable`: what is kept connected, whatever it speaks: who asks waits for the connection, and
hooks hear when it comes and goes.

Links stand on it, and the clients of other dialects.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

import anyio

from parley._node.backoff import Pauses
from parley._node.errors import CallTimeout, HandshakeError, ParleyError, UnreachableError
from parley._node.links.hooks import Hook, Hooks
from parley._node.links.redial import Redial, random_fraction
from parley._node.logs import one_line
from parley._node.protocol.errors import LocalProtocolError
from parley._node.transport.backend import Backend
from parley._node.transport.conditions import Changes, left_after
from parley._node.transport.driver import Driver

logger = logging.getLogger("parley.link")

# Calls, emissions, messages and subscriptions that wait for one connection.
MOST_WAITING: Final = 4_096

H = TypeVar("H", bound=Hook)


class Connected(Protocol):
    """The other side, over one connection."""

    @property
    def driver(self) -> Driver:
        """What serves the connection."""

    @property
    def is_open(self) -> bool:
        """Whether the connection has not ended."""


C = TypeVar("C", bound=Connected)


class Reachable(ABC, Generic[C]):
    """`error` is why it is down, None while it is up. `sessions` counts the connections that were
    established, `attempts` those that failed since, and `pause` is how many seconds after the last
    of these the next one is made.
    """

    def __init__(
        self,
        what: str,
        pauses: Pauses | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> None:
        """`what` names it in errors and in the log."""
        self.error: Exception | None = None
        self._reported = ""  # the text of the last failure, also once the link is up
        self.sessions = 0
        self.attempts = 0
        self.pause = 0.0
        self.changes = Changes(lambda: self.backend.waiter())
        self._what = what
        self._loop: Backend | None = None
        self._current: C | None = None
        self._left = False
        self._said_up = False
        self._waiting = 0
        self._up = Hooks("on_up", "peer")
        self._down = Hooks("on_down", "error")
        self._redial = Redial(
            self._attempt, self._failed, over=self.changes.notify, pauses=pauses, draw=draw
        )

    # What is known of it.

    @property
    def backend(self) -> Backend:
        """The loop it lives in; ParleyError before its `async with`."""
        if self._loop is None:
            raise ParleyError(f"the {self._what} is not running: use `async with`")
        return self._loop

    @property
    def is_over(self) -> bool:
        """Whether no connection follows the one that there is, or was."""
        return self._left or (self._loop is not None and self._redial.is_over)

    async def ready(self, timeout: float | None = None, *, attempts: int | None = None) -> C:
        """Wait until it is up; returns the other side. `timeout` is seconds, None: as long as it
        takes. After so many failed `attempts` in a row it waits no longer either.

        Raises:
            UnreachableError, HandshakeError, NotTrustedError, RelayRefusedError, PeerClosedError:
                it is not up by then; the last reason. PeerClosedError: it is over.
        """
        with anyio.move_on_after(timeout):
            await self.changes.until(
                lambda: (
                    self._usable() is not None
                    or self.is_over
                    or (attempts is not None and self.attempts >= attempts)
                )
            )
        current = self._usable()
        if current is not None:
            return current
        if self.is_over:
            raise self.over_error()
        raise self.error or UnreachableError(f"{self._what}: no connection in {timeout:g} s")

    def on_up(self, hook: H) -> H:
        """Have a function called with the other side each time a connection was established; as a
        decorator, or not. A coroutine function runs in a task, which ends with the connection.

        Raises:
            ConfigError: it is not a function, or there are 64 of them.
        """
        self._up.add(hook)
        return hook

    def on_down(self, hook: H) -> H:
        """Have a function called with the error, each time a connection ended; as `on_up`, but its
        task goes on until all of it is left."""
        self._down.add(hook)
        return hook

    # For what speaks on it.

    async def connected(self, timeout: float | None) -> tuple[C, float | None]:
        """The other side, once it can be asked at once, and what is left of `timeout`.

        Raises:
            CallTimeout: it took longer; its cause is why there is no connection. PeerClosedError:
                it is over. LocalProtocolError: 4,096 wait already.
        """
        while True:
            current = self._usable()
            if current is None:
                timeout = await self._wait(timeout)
            elif current.driver.has_room:
                return current, timeout
            else:
                timeout = await left_after(current.driver.room, timeout, self.backend.now)

    @abstractmethod
    def over_error(self) -> ParleyError:
        """What to raise once it is over."""

    # For those who keep it up.

    @abstractmethod
    async def _attempt(self) -> Exception:
        """Dial, and say `_came` of each connection; returns why the last one ended, once it has."""

    @abstractmethod
    def _usable(self) -> C | None:
        """The other side, if something can be asked of it."""

    def _came(self, current: C) -> None:
        """A connection was established."""
        self._current = current
        self.sessions += 1
        logger.info("%s is up", self._what, extra={"event": "link.up"})
        self._said_up = True
        self._up.call(self.backend, current)

    def _holds(self) -> None:
        """It is there: who waits may go on."""
        self.attempts = 0
        self.error = None
        self._redial.established()
        self.changes.notify()

    def _went(self, why: Exception) -> None:
        """No connection is there any more, if there was one."""
        if self._said_up:
            self._said_up = False
            self._down.call(self.backend, why)

    def _finish(self) -> None:
        """No connection follows the one that there is."""
        self._left = True
        self._redial.finish()
        self.changes.notify()

    async def _stop(self) -> None:
        """End what runs for it, and wait until it has."""
        self._up.cancel()
        self._down.cancel()
        await self._redial.stop()
        self.changes.notify()

    # Inside.

    async def _wait(self, timeout: float | None) -> float | None:
        if self._waiting >= MOST_WAITING:
            raise LocalProtocolError(f"{MOST_WAITING:,} wait for the connection already")
        self._waiting += 1
        try:
            left = await left_after(
                lambda: self.changes.until(lambda: self._usable() is not None or self.is_over),
                timeout,
                self.backend.now,
            )
        except CallTimeout as error:
            why = self.error or "no attempt to connect has ended yet"
            error.args = (f"{self._what} is not connected: {why}",)
            raise error from self.error
        finally:
            self._waiting -= 1
        if self.is_over:
            raise self.over_error()
        return left

    def _failed(self, why: Exception, seconds: float) -> None:
        # One that is refused by a responder was up for a moment: that makes it no news.
        again = self.attempts or (isinstance(why, HandshakeError) and self._redial.failures > 1)
        told = again and str(why) == self._reported
        self.error, self.pause, self._reported = why, seconds, str(why)
        self.attempts += 1
        logger.log(
            logging.DEBUG if told else logging.WARNING,
            "%s: %s; dialled again in %.1f s",
            self._what,
            one_line(str(why)),
            seconds,
            extra={"event": "link.failed", "again_in": seconds},
        )
        if self._current is None or not self._current.is_open:
            self._went(why)
        self.changes.notify()
