"""Clients that reconnect: a retry loop with backoff, callbacks, and an emitter that waits for a
connection. Links and the clients of other dialects use it.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, Protocol, TypeVar

import anyio

from parley._crypto.randomness import random_bytes
from parley._node.backoff import Backoff
from parley._node.errors import (
    APPLICATION_ERRORS,
    CallRefused,
    CallTimeout,
    ConfigError,
    HandshakeError,
    ParleyError,
    PeerClosedError,
    UnreachableError,
)
from parley._node.logs import one_line
from parley._node.messaging.named_events import OutgoingEmit
from parley._node.messaging.payloads import Payload
from parley._node.protocol.codes import CloseCode, ResultCode
from parley._node.protocol.errors import LimitReachedError
from parley._node.remote.emission import Emitter
from parley._node.transport.backend import Backend
from parley._node.transport.callables import require_callable
from parley._node.transport.conditions import Condition, is_async, pause_until, wait_within
from parley._node.transport.driver import Driver
from parley._node.transport.loop import Runner
from parley._node.transport.task_scope import SingleTask

logger = logging.getLogger("parley.link")

# Hooks of each kind.
MOST_HOOKS: Final = 64

Hook = Callable[..., Awaitable[None] | None]


class Hooks:
    """The hooks of one kind, in the order in which they were added. Functions are called at once,
    coroutine functions run in tasks of their own: one at a time each, so that one which is still
    running when its turn comes again misses that turn, which is logged."""

    def __init__(self, kind: str, argument: str) -> None:
        """`argument` is the name of the argument that its hooks get."""
        self._kind = kind
        self._argument = argument
        self._hooks: list[Hook] = []
        self._running: dict[Hook, Runner] = {}

    def add(self, hook: Hook) -> None:
        """Add one.

        Raises:
            ConfigError: it cannot be called, or there are 64.
        """
        require_callable(hook, f"a hook of {self._kind}", self._argument)
        if len(self._hooks) >= MOST_HOOKS:
            raise ConfigError(f"there are at most {MOST_HOOKS} hooks of a kind")
        self._hooks.append(hook)

    def call(self, loop: Backend, argument: Any) -> None:
        """Call them all."""
        for hook in self._hooks:
            if not is_async(hook):
                try:
                    hook(argument)
                except APPLICATION_ERRORS:
                    logger.exception(
                        "a hook of %s failed", self._kind, extra={"event": "hook.failed"}
                    )
            elif hook in self._running:
                logger.warning(
                    "%s: %s is still running, and misses a turn",
                    self._kind,
                    getattr(hook, "__qualname__", type(hook).__qualname__),
                    extra={"event": "hook.missed"},
                )
            else:
                self._running[hook] = loop.spawn(self._run, hook, argument)

    def cancel(self) -> None:
        """Cancel those that run."""
        running, self._running = self._running, {}
        for runner in running.values():
            runner.cancel()

    async def _run(self, hook: Hook, argument: Any) -> None:
        mine = self._running.get(hook)
        try:
            made = hook(argument)
            if made is not None:
                await made
        except anyio.get_cancelled_exc_class():
            raise
        except PeerClosedError as error:
            logger.info("a hook of %s: %s", self._kind, error, extra={"event": "hook.ended"})
        except APPLICATION_ERRORS:
            logger.exception("a hook of %s failed", self._kind, extra={"event": "hook.failed"})
        finally:
            if self._running.get(hook) is mine:
                self._running.pop(hook, None)


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


class RetryLoop:
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
        pauses: Backoff | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> None:
        self.failures = 0
        self._attempt = attempt
        self._told = told
        self._tell_over = over
        if pauses is not None and not isinstance(pauses, Backoff):
            raise ConfigError(f"pauses is {pauses!r}; it must be a Backoff")
        self._pauses = pauses or Backoff()
        self._draw = draw
        self._established: float | None = None
        self._loop: Backend | None = None
        self._job: SingleTask | None = None
        self._finishing = False
        self._at_once = False
        self._changes = Condition(lambda: self._running().waiter())

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
        self._job = SingleTask(loop, self._changes)
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

    async def pause_after_failure(self, why: Exception) -> None:
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
                await self.pause_after_failure(why)
        finally:
            self._finishing = True
            self._tell_over()

    async def _try(self) -> Exception:
        try:
            return await self._attempt()
        except ParleyError as error:
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
        return self._pauses.delay(self.failures, self._draw())


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


class ReconnectingClient(ABC, Generic[C]):
    """`error` is why it is down, None while it is up. `sessions` counts the connections that were
    established, `attempts` those that failed since, and `pause` is how many seconds after the last
    of these the next one is made.
    """

    def __init__(
        self,
        what: str,
        pauses: Backoff | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> None:
        """`what` names it in errors and in the log."""
        self.error: Exception | None = None
        self._reported = ""  # the text of the last failure, also once the link is up
        self.sessions = 0
        self.attempts = 0
        self.pause = 0.0
        self.changes = Condition(lambda: self.backend.waiter())
        self._what = what
        self._loop: Backend | None = None
        self._current: C | None = None
        self._left = False
        self._said_up = False
        self._waiting = 0
        self._up = Hooks("on_up", "peer")
        self._down = Hooks("on_down", "error")
        self._redial = RetryLoop(
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
                it is not up by then; the last reason.
            PeerClosedError: it is over.
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
            CallTimeout: it took longer; its cause is why there is no connection.
            PeerClosedError: it is over.
            LimitReachedError: 4,096 wait already.
        """
        while True:
            current = self._usable()
            if current is None:
                timeout = await self._wait(timeout)
            elif current.driver.can_send:
                return current, timeout
            else:
                timeout = await wait_within(current.driver.wait_writable, timeout, self.backend.now)

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
            raise LimitReachedError(f"{MOST_WAITING:,} wait for the connection already")
        self._waiting += 1
        try:
            left = await wait_within(
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
            "%s: %s; retrying in %.1f s",
            self._what,
            one_line(str(why)),
            seconds,
            extra={"event": "link.failed", "again_in": seconds},
        )
        if self._current is None or not self._current.is_open:
            self._went(why)
        self.changes.notify()


T = TypeVar("T")
C_co = TypeVar("C_co", covariant=True)


class Connector(Protocol[C_co]):
    """What connects, and connects again: a link, or a client."""

    @property
    def backend(self) -> Backend:
        """The loop it lives in; ParleyError before its `async with`."""

    async def connected(self, timeout: float | None) -> tuple[C_co, float | None]:
        """The other side, once it can be asked at once, and what is left of `timeout`."""


class ReconnectingEmitter(Generic[T]):
    """Sends one event: an `Emitter`. `emitter_of` is what sends over one connection."""

    __slots__ = ("_emitter", "_emitter_of", "_waited", "marks_end")

    def __init__(
        self, waited: Connector[T], emitter_of: Callable[[T], Emitter], *, marks_end: bool = True
    ) -> None:
        self._waited = waited
        self._emitter_of = emitter_of
        self._emitter: Emitter  # from `wait_writable` on
        self.marks_end = marks_end

    @property
    def backend(self) -> Backend:
        """The loop it lives in; ParleyError before the `async with` of what connects."""
        return self._waited.backend

    @property
    def can_send(self) -> bool:
        """Never: `wait_writable` is always waited for."""
        return False

    async def wait_writable(self, timeout: float | None) -> float | None:
        """Wait for a connection with room; raises as `ReconnectingClient.connected`."""
        reached, left = await self._waited.connected(timeout)
        self._emitter = emitter = self._emitter_of(reached)
        return left if emitter.can_send else await emitter.wait_writable(left)

    def send(self, name: str, namespace: str, payload: Payload) -> None:
        """Send an event to which no reply is wanted."""
        self._emitter.send(name, namespace, payload)

    def ask(
        self, emit: OutgoingEmit, name: str, namespace: str, payload: Payload, timeout: float | None
    ) -> None:
        """Send an event; `emit` gets its replies."""
        self._emitter.ask(emit, name, namespace, payload, timeout)

    def stop_waiting(self, emit: OutgoingEmit) -> None:
        """Wait for no more of its replies."""
        self._emitter.stop_waiting(emit)

    def cancel(self, emit: OutgoingEmit) -> None:
        """Want none of its replies: its handler is to end, where that can be said."""
        self._emitter.cancel(emit)

    def closed_error(self) -> PeerClosedError:
        """Why nothing can be sent any more."""
        return self._emitter.closed_error()
