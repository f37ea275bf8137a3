"""Resumption of suspended sessions by the side that dialled (docs/protocol.md section 17)."""

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Final

import anyio

from parley._crypto.randomness import random_bytes
from parley._node.backoff import Backoff
from parley._node.errors import ParleyError
from parley._node.logs import one_line
from parley._node.messaging.deadline_queue import DeadlineQueue
from parley._node.protocol.codes import SENTENCES, CloseCode, code_name
from parley._node.protocol.errors import LocalError
from parley._node.protocol.reports import AttemptEnded
from parley._node.remote.live_connection import LiveConnection
from parley._node.transport.driver import NEVER, Driver
from parley._node.transport.loop import Runner, Waiter

logger = logging.getLogger("parley.peer")

# Dials and lets the returned driver serve the connection; if it is None, the connection is closed.
Dial = Callable[[Callable[[], Driver | None]], Awaitable[None]]
# Opens and closes another session with the same node; raises an exception if that fails.
Prove = Callable[[Dial], Awaitable[None]]

PAUSES: Final = Backoff(first=0.1, longest=5.0)
# The timeout of a dial in seconds; the resume attempt then has its own limit of 5 s.
DIAL_TIMEOUT: Final = 5.0
# If a transport lasted less than this (in seconds), pause before the next attempt, so that an
# attacker who cuts every transport doesn't keep this node busy.
STEADY: Final = 1.0


class SessionResumer:
    """Makes new transports for one session, trying `dials` in turn from number `next`.

    The first attempt starts immediately, later ones after growing pauses. Any intermediary can
    claim that the session is unknown. After two such claims in a row, a new handshake with the node
    itself (`prove`) confirms that it was restarted; the session then ends.
    """

    def __init__(self, live: LiveConnection, dials: Sequence[Dial], prove: Prove) -> None:
        self._live = live
        self._dials = list(dials)
        self._prove = prove
        self.next = 0
        self._said: dict[int, str] = {}  # The last logged failure of each dial.
        self._wanted = False
        self._resumed_at = -NEVER
        self._runner: Runner | None = None
        self._pausing: Waiter | None = None

    def add(self, dials: Iterable[Dial]) -> None:
        self._dials.extend(dials)

    def begin(self) -> None:
        """Start resuming, because the session is suspended."""
        if self._runner is None:
            self._runner = self._live.backend.spawn(self._run)

    def now(self, by: int | None = None) -> None:
        """Start an attempt now, even if the session has a transport; `by` selects a dial."""
        if by is not None:
            self.next = by
        self._wanted = True
        self.begin()
        if self._pausing is not None:
            self._pausing.wake()

    def stop(self) -> None:
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.cancel()

    async def _run(self) -> None:
        live = self._live
        now = live.backend.now
        failures = int(not self._wanted and now() < self._resumed_at + STEADY)
        if failures:
            live.driver.blame()
        unknown = 0
        while live.ended is None and (live.core.is_suspended or self._wanted):
            if failures and not self._wanted:
                await self._pause(PAUSES.delay(failures, random_bytes(1)[0] / 255))
            self._wanted = False
            dial = self._dials[self.next]
            tried = await self._attempt(dial)
            if tried.resumed:
                failures = unknown = 0
                self._said.clear()
                self._resumed_at = now()
                continue
            failures += 1
            unknown = unknown + 1 if tried.unknown else 0
            if unknown > 1 and live.asks_anew and await self._is_gone(dial):
                self._runner = None
                live.lost("the peer does not know the session")
                return
            self.next = (self.next + 1) % len(self._dials)
        self._runner = None

    async def _is_gone(self, dial: Dial) -> bool:
        """Whether the node answers a new handshake, so that it has lost the session."""
        try:
            await self._prove(dial)
        except (ParleyError, OSError) as error:
            logger.debug(
                "cannot look up %s again: %s",
                self._live.remote,
                error,
                extra={"event": "resume.failed"},
            )
            return False
        return self._live.core.is_suspended

    async def _pause(self, seconds: float) -> None:
        loop = self._live.backend
        self._pausing = waiter = loop.waiter()
        timer = loop.call_at(loop.now() + seconds, waiter.wake)
        try:
            await waiter
        finally:
            self._pausing = None
            timer.cancel()

    def _log_failure(self, why: str) -> None:
        """Log a failure if it differs from the last one of this dial."""
        level = logging.DEBUG if self._said.get(self.next) == why else logging.INFO
        self._said[self.next] = why
        logger.log(
            level,
            "%s is not resumed yet: %s",
            self._live.remote,
            one_line(why),
            extra={"event": "resume.failed"},
        )

    async def _attempt(self, dial: Dial) -> "_Try":
        one = _Try(self._live)
        try:
            with anyio.move_on_after(DIAL_TIMEOUT):
                await dial(one.begin)
            if one.driver is not None:
                await one.over
                if not one.resumed and self._live.ended is None:
                    one.driver.blame()
                    self._log_failure(one.why)
        except (ParleyError, OSError) as error:
            self._log_failure(str(error))
        except Exception:
            logger.exception("dialling again failed", extra={"event": "resume.bug"})
        finally:
            one.cancel()
        return one


class _Try:
    """One attempt, and the driver that serves it until it transfers its transport to the
    session.
    """

    def __init__(self, live: LiveConnection) -> None:
        self._live = live
        self.over = live.backend.waiter()
        self.driver: Driver | None = None
        self.resumed = False
        self.unknown = False
        self.why = "the other side did not answer as it must, or not in time"

    def begin(self) -> Driver | None:
        """Start the attempt over a connected transport; the session closes its old one."""
        live = self._live
        try:
            self._attempt = live.core.start_attempt(live.backend.now())
        except LocalError:
            return None
        self.driver = driver = Driver(
            self._attempt,
            live.backend,
            self._ended,
            DeadlineQueue(),
            lambda now: None,
            self.over.wake,
            barrier=live.driver.barrier,
        )
        live.driver.step()
        return driver

    def cancel(self) -> None:
        if self.driver is not None and not self.resumed:
            self._attempt.abort(self._live.backend.now(), CloseCode.CONNECTION_LOST, "given up")
            self.driver.step()

    def _ended(self, reports: list[Any]) -> None:
        ended: AttemptEnded = reports[0]
        live, driver = self._live, self.driver
        if ended.outcome == "resumed" and driver is not None:
            self.resumed = True
            driver.hand_over(live.driver, self._attempt.unread_bytes)
        elif ended.outcome == "rejected":
            code = ended.code or 0
            self.why = f"the other side rejects it: {SENTENCES.get(code) or code_name(code)}"
            if code == CloseCode.UNKNOWN_SESSION:
                self.unknown = live.unknown = True
                live.changed()
