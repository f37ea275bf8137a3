"""Runs one handler for one request, in whatever dialect it came: whether it may run, whether it
may run now, and what came of it.

Whatever the handler does, there is an outcome, a code and a value; details go to the log.
"""

import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

from parley._node.errors import APPLICATION_ERRORS, CallRefused, sole_error
from parley._node.handlers.interceptors import Intercepted
from parley._node.handlers.registry import Entry, Slots
from parley._node.handlers.rules import Roles, permitted
from parley._node.protocol.codes import RESULT_SENTENCES, ResultCode
from parley._node.remote import access_log as access
from parley._node.remote.remote import Remote
from parley._node.remote.requests import Call

logger = logging.getLogger("parley.peer")

# A code of section 9, and the answer that goes with it.
Outcome = tuple[int, Any]

FAILED: Final[Outcome] = (ResultCode.HANDLER_FAILED, RESULT_SENTENCES[ResultCode.HANDLER_FAILED])


async def run_handler(
    entry: Entry[Any],
    request: object,
    peer: Remote,
    name: str,
    roles: Roles,
    take_items: Callable[[AsyncGenerator[Any, Any]], Awaitable[Outcome]],
    *,
    inside: bool = False,
    timed: bool = False,
) -> Outcome:
    """What the handler of `entry` answers to `request`, which is of `peer` and for `name`.

    `take_items` is given what a handler that yields yields, and makes the outcome of it.
    Its duration is logged if that was asked for, unless the caller has `timed` it.
    What is cancelled is cancelled here too. What its interceptors run `inside` of them raises what
    it raises, for them to see.
    """
    if not (inside or timed) and access.logs_answers():
        now = peer.backend.now
        began = now()
        outcome = await run_handler(entry, request, peer, name, roles, take_items, timed=True)
        kind = "call" if isinstance(request, Call) else "event"
        access.log_answered(peer, kind, name, outcome[0], now() - began)
        return outcome
    slots = None
    try:
        if entry.chain and not inside:
            around = _Around(entry, request, peer, name, roles, take_items)
            return ResultCode.ACCEPTED, await entry.chain.run(around.intercepted(), around.proceed)
        if entry.rules and not await permitted(entry.rules, peer, name, roles):
            return ResultCode.NOT_AUTHORISED, None
        if entry.slots is not None:
            await _slot_and_room(entry.slots, peer)
            slots = entry.slots
        elif not peer.driver.has_room:
            await peer.driver.room()
        result = entry.handler(request)
        if inspect.isasyncgen(result):
            return await take_items(result)
        if inspect.isawaitable(result):
            result = await result
    except APPLICATION_ERRORS as error:
        failure = sole_error(error)
        if inside and failure is error:
            raise
        if inside:
            raise failure from error
        # What was received is of a call of the handler's own: none of the caller's business.
        if isinstance(failure, CallRefused) and not failure.received:
            return failure.code, failure.data
        log_failure(entry, name, peer)
        return FAILED
    finally:
        if slots is not None:
            slots.release()
    return ResultCode.ACCEPTED, result


class _Around:
    """One request, for the interceptors around its handler."""

    __slots__ = ("_entry", "_name", "_peer", "_request", "_roles", "_take_items")

    def __init__(
        self,
        entry: Entry[Any],
        request: Any,
        peer: Remote,
        name: str,
        roles: Roles,
        take_items: Callable[[AsyncGenerator[Any, Any]], Awaitable[Outcome]],
    ) -> None:
        self._entry = entry
        self._request = request
        self._peer = peer
        self._name = name
        self._roles = roles
        self._take_items = take_items

    def intercepted(self) -> Intercepted:
        chain, request = self._entry.chain, self._request
        assert chain is not None  # else nothing is around it
        data = headers = None
        if isinstance(request, Call):
            data, headers = request.data, request.headers
        return Intercepted(chain, self._peer, self._name, data, headers, request=request)

    async def proceed(self, one: Intercepted) -> Any:
        """Ask `allow=`, wait for a slot, run the handler; returns the data of its answer, None if
        that was sent in items.

        Raises:
            CallRefused: it is not allowed, or the handler refused; what else the handler raises.
        """
        request = self._request
        if isinstance(request, Call):
            request.data = one.data
        code, data = await run_handler(
            self._entry,
            request,
            self._peer,
            self._name,
            self._roles,
            self._take_items,
            inside=True,
        )
        if code:
            raise CallRefused(code, data)
        return data


def log_failure(
    entry: Entry[Any], name: str, peer: Remote, what: str = "the handler of %r"
) -> None:
    """Log the exception that is being handled, unless there were many of this handler: a peer
    that sends what makes it fail shall not fill the log."""
    now, failed = peer.backend.now(), what + " failed"
    entry.failures.log(
        logger,
        logging.ERROR,
        now,
        failed,
        name,
        exc_info=True,
        extra={"event": "handler.failed", "topic": name},
    )


async def _slot_and_room(slots: Slots, peer: Remote) -> None:
    """Wait for a slot while there is room for an answer: a peer that reads none of them waits
    without a slot, and what a handler's answers hold is bounded by its `concurrency`."""
    driver, waiter = peer.driver, peer.backend.waiter
    await slots.acquire(peer, waiter)
    while not driver.has_room:
        slots.release()
        await driver.room()
        await slots.acquire(peer, waiter)
