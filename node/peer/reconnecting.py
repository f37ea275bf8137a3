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
    IdentityEndedError,
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

# The most hooks of each kind.
MOST_HOOKS: Final = 64

Hook = Callable[..., Awaitable[None] | None]


class Hooks:
    """The hooks of one kind, called in the order in which they were added.

    Functions are called directly; coroutine functions run in their own tasks. If a coroutine
    function is still running when it would be called again, that call is skipped and logged.
    """

    def __init__(self, kind: str, argument: str) -> None:
        """`argument` is the name of the argument that the hooks receive."""
        self._kind = kind
        self._argument = argument
        self._hooks: list[Hook] = []
        self._running: dict[Hook, Runner] = {}

    def add(self, hook: Hook) -> None:
        """Add a hook.

        Raises:
            ConfigError: it isn't callable, or there are 64 hooks already.
        """
        require_callable(hook, f"a hook of {self._kind}", self._argument)
        if len(self._hooks) >= MOST_HOOKS:
            raise ConfigError(f"cannot add a hook to {self._kind}: the limit is {MOST_HOOKS} hooks")
        self._hooks.append(hook)

    def call(self, loop: Backend, argument: Any) -> None:
        """Call all hooks."""
        for hook in self._hooks:
            if not is_async(hook):
                try:
                    hook(argument)
                except APPLICATION_ERRORS:
                    logger.exception(
                        "an %s hook failed", self._kind, extra={"event": "hook.failed"}
                    )
            elif hook in self._running:
                logger.warning(
                    "%s: skipped %s, which is still running",
                    self._kind,
                    getattr(hook, "__qualname__", type(hook).__qualname__),
                    extra={"event": "hook.missed"},
                )
            else:
                self._running[hook] = loop.spawn(self._run, hook, argument)

    def cancel(self) -> None:
        """Cancel the running hooks."""
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
            logger.info("an %s hook ended: %s", self._kind, error, extra={"event": "hook.ended"})
        except APPLICATION_ERRORS:
            logger.exception("an %s hook failed", self._kind, extra={"event": "hook.failed"})
        finally:
            if self._running.get(hook) is mine:
                self._running.pop(hook, None)


_FRACTION_SIZE: Final = 6  # In bytes.

# One attempt: it dials, uses the connection until it ends, and returns or raises the reason.
Attempt = Callable[[], Awaitable[Exception]]
# Called when an attempt ends, with the reason and the seconds until the next attempt.
Told = Callable[[Exception, float], None]

# These failures repeat until an operator changes a setting.
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
    """Return whether dialling again soon cannot succeed.

    Either the address leads to another node, one side does not trust the other or gives it no
    account, the node ID has ended without a successor, they have no common algorithm or version, or
    a setting is wrong.
    """
    if isinstance(error, CallRefused):
        return error.code == ResultCode.NOT_AUTHORISED
    if isinstance(error, IdentityEndedError):
        return error.successor is None
    if isinstance(error, HandshakeError | PeerClosedError):
        return error.code in _LASTING
    return isinstance(error, ConfigError)


class RetryLoop:
    """Makes connection attempts in its own task, one at a time, from `begin` to `stop`.

    `failures` counts consecutive attempts whose connection lasted less than `pauses.steady`. After
    an error for which `is_lasting` is true, the next pause is the longest one. `over` is called
    when the loop ends.
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
            raise ConfigError(f"invalid pauses {pauses!r}: expected a Backoff")
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
        """Whether no attempts are made: before `begin`, after `stop`, or after the loop has
        ended.
        """
        return self._job is None or not self._job.running

    def begin(self, loop: Backend) -> None:
        """Start dialling; raise ParleyError if it has already started."""
        if not self.is_over:
            raise ParleyError("cannot start the retry loop: it is already running")
        self._loop, self.failures = loop, 0
        self._finishing, self._established = False, None
        self._job = SingleTask(loop, self._changes)
        self._job.start(self._run)

    def established(self) -> None:
        """Record that the current attempt has a connection."""
        self._established = self._running().now()

    def hurry(self) -> None:
        """Skip the current pause and dial now."""
        self._at_once = True
        self._changes.notify()

    def finish(self) -> None:
        """Make no further attempts; an attempt that has its connection continues until it ends."""
        self._finishing = True
        if self._established is None:
            self.cancel()

    def cancel(self) -> None:
        """Make no further attempts and cancel the current one."""
        if self._job is not None:
            self._job.cancel()

    async def pause_after_failure(self, why: Exception) -> None:
        """Pause after a failure within an attempt that dials more than once; `why` is the reason.

        The attempt's earlier connection no longer counts as established.
        """
        seconds = self._seconds(why)
        self._at_once = False
        self._told(why, seconds)
        self._established = None
        await pause_until(self._running(), seconds, self._changes, lambda: self._at_once)

    async def stop(self) -> None:
        """Cancel the loop and wait until it has ended, even if the caller is cancelled."""
        if self._job is not None:
            with anyio.CancelScope(shield=True):
                await self._job.end()

    def _running(self) -> Backend:
        if self._loop is None:
            raise ParleyError("cannot use the retry loop: it has not started")
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
            # A bug must not end the retry loop, and its traceback must be logged.
            logger.exception(
                "an attempt to connect failed unexpectedly", extra={"event": "link.bug"}
            )
            return ParleyError(f"unexpected {type(error).__name__}; its traceback is in the log")

    def _seconds(self, why: Exception) -> float:
        established, steady = self._established, self._pauses.steady
        held = established is not None and self._running().now() - established >= steady
        self.failures = 1 if held else self.failures + 1
        if is_lasting(why):
            return self._pauses.longest * (1.0 + self._draw()) / 2.0
        return self._pauses.delay(self.failures, self._draw())


# The most calls, emissions, messages and subscriptions that wait for one connection.
MOST_WAITING: Final = 4_096

H = TypeVar("H", bound=Hook)


class Connected(Protocol):
    """The remote side of one connection."""

    @property
    def driver(self) -> Driver:
        """The driver of the connection."""

    @property
    def is_open(self) -> bool:
        """Whether the connection has not ended."""


C = TypeVar("C", bound=Connected)


class ReconnectingClient(ABC, Generic[C]):
    """A client that reconnects to one remote side.

    Attributes: error: the reason why it is down; None while it is up. sessions: how many
    connections were established. attempts: how many attempts have failed since the last connection.
    pause: seconds from the last failed attempt to the next one.
    """

    def __init__(
        self,
        what: str,
        pauses: Backoff | None = None,
        draw: Callable[[], float] = random_fraction,
    ) -> None:
        """`what` names the client in errors and in the log."""
        self.error: Exception | None = None
        self._reported = ""  # The text of the last failure, kept while the link is up.
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

    @property
    def backend(self) -> Backend:
        """The event loop; raises ParleyError before the `async with` block is entered."""
        if self._loop is None:
            raise ParleyError(
                f"cannot use the {self._what}: it isn't running; enter it with `async with`"
            )
        return self._loop

    @property
    def is_over(self) -> bool:
        """Whether no further connection will be made."""
        return self._left or (self._loop is not None and self._redial.is_over)

    async def ready(self, timeout: float | None = None, *, attempts: int | None = None) -> C:
        """Wait until it is up and return the remote side.

        `timeout` is in seconds; None waits without a limit. With `attempts`, it also stops waiting
        after that many consecutive failed attempts.

        Raises:
            UnreachableError: it could not connect in time. This and the next four errors are the
                reason of the last failed attempt.
            HandshakeError: the handshake failed.
            NotTrustedError: one side does not trust the other.
            RelayRefusedError: a relay refused the connection.
            PeerClosedError: the last connection was closed, or no further connection will be made.
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
        raise self.error or UnreachableError(
            f"cannot use the {self._what}: no connection in {timeout:g} s"
        )

    def on_up(self, hook: H) -> H:
        """Register a function to call with the remote side whenever a connection is established.

        Can be used as a decorator. A coroutine function runs in a task, which is cancelled when the
        connection ends.

        Raises:
            ConfigError: `hook` isn't callable, or there are 64 hooks already.
        """
        self._up.add(hook)
        return hook

    def on_down(self, hook: H) -> H:
        """Register a function to call with the error whenever a connection has ended.

        Can be used as a decorator. A coroutine function runs in a task, which is cancelled only
        when the client itself is left.

        Raises:
            ConfigError: `hook` isn't callable, or there are 64 hooks already.
        """
        self._down.add(hook)
        return hook

    # Used by requests.

    async def connected(self, timeout: float | None) -> tuple[C, float | None]:
        """Wait until the remote side accepts requests; return it with the rest of `timeout`.

        Raises:
            CallTimeout: there was no connection in time; its cause is the reason.
            PeerClosedError: no further connection will be made.
            LimitReachedError: 4,096 requests are already waiting.
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
        """Return the error to raise after the client has ended."""

    # Used by subclasses.

    @abstractmethod
    async def _attempt(self) -> Exception:
        """Dial, call `_came` for each connection, and return the reason why the last one ended."""

    @abstractmethod
    def _usable(self) -> C | None:
        """Return the remote side, if it accepts requests."""

    def _came(self, current: C) -> None:
        """Record a new connection and call the `on_up` hooks."""
        self._current = current
        self.sessions += 1
        logger.info("%s is up", self._what, extra={"event": "link.up"})
        self._said_up = True
        self._up.call(self.backend, current)

    def _holds(self) -> None:
        """Record that the connection can be used, and wake the waiting requests."""
        self.attempts = 0
        self.error = None
        self._redial.established()
        self.changes.notify()

    def _went(self, why: Exception) -> None:
        """Call the `on_down` hooks, if a connection was up."""
        if self._said_up:
            self._said_up = False
            self._down.call(self.backend, why)

    def _finish(self) -> None:
        """Make no further connections after the current one."""
        self._left = True
        self._redial.finish()
        self.changes.notify()

    async def _stop(self) -> None:
        """Stop all tasks and wait until they have ended."""
        self._up.cancel()
        self._down.cancel()
        await self._redial.stop()
        self.changes.notify()

    async def _wait(self, timeout: float | None) -> float | None:
        if self._waiting >= MOST_WAITING:
            raise LimitReachedError(
                f"cannot wait for the {self._what}: {MOST_WAITING:,} requests are already waiting"
            )
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
        # A responder refuses a node only after the link was up for a moment, so compare with the
        # failure before and don't log the same failure twice.
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
    """A reconnecting link or client."""

    @property
    def backend(self) -> Backend:
        """The event loop; raises ParleyError before the `async with` block is entered."""

    async def connected(self, timeout: float | None) -> tuple[C_co, float | None]:
        """Wait until the remote side accepts requests; return it with the rest of `timeout`."""


class ReconnectingEmitter(Generic[T]):
    """An `Emitter` for one event, which waits for a connection. `emitter_of` returns its
    emitter.
    """

    __slots__ = ("_emitter", "_emitter_of", "_waited", "marks_end")

    def __init__(
        self, waited: Connector[T], emitter_of: Callable[[T], Emitter], *, marks_end: bool = True
    ) -> None:
        self._waited = waited
        self._emitter_of = emitter_of
        self._emitter: Emitter  # Set by `wait_writable`.
        self.marks_end = marks_end

    @property
    def backend(self) -> Backend:
        """The event loop; raises ParleyError before the `async with` block is entered."""
        return self._waited.backend

    @property
    def can_send(self) -> bool:
        """Always False, so that callers wait with `wait_writable`."""
        return False

    async def wait_writable(self, timeout: float | None) -> float | None:
        """Wait for a connection with free capacity; raises the errors of
        `ReconnectingClient.connected`.
        """
        reached, left = await self._waited.connected(timeout)
        self._emitter = emitter = self._emitter_of(reached)
        return left if emitter.can_send else await emitter.wait_writable(left)

    def send(self, name: str, namespace: str, payload: Payload) -> None:
        """Send an event without waiting for replies."""
        self._emitter.send(name, namespace, payload)

    def ask(
        self, emit: OutgoingEmit, name: str, namespace: str, payload: Payload, timeout: float | None
    ) -> None:
        """Send an event; `emit` receives its replies."""
        self._emitter.ask(emit, name, namespace, payload, timeout)

    def stop_waiting(self, emit: OutgoingEmit) -> None:
        """Stop waiting for replies to an event."""
        self._emitter.stop_waiting(emit)

    def cancel(self, emit: OutgoingEmit) -> None:
        """Discard further replies and, if the protocol allows it, cancel the remote handler."""
        self._emitter.cancel(emit)

    def closed_error(self) -> PeerClosedError:
        """Return the error to raise when the connection has ended."""
        return self._emitter.closed_error()
