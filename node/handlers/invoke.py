"""Runs handlers for requests in every dialect, and sends what they yield.

The result is always a code and a value; details of a failure go to the log only.
"""

import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, Final

from parley._node.errors import APPLICATION_ERRORS, CallRefused, sole_error
from parley._node.handlers.interceptors import Intercepted
from parley._node.handlers.permissions import Roles, is_permitted
from parley._node.handlers.registry import ConcurrencyLimit, Entry, Handlers
from parley._node.handlers.topic import FORWARD_LOOP, SubscribeRequest, Topic
from parley._node.messaging.incoming_calls import IncomingCall
from parley._node.protocol.codes import RESULT_SENTENCES, ResultCode, Supercategory
from parley._node.protocol.errors import LocalError, PayloadTooLargeError
from parley._node.protocol.limits import EVENT_COST
from parley._node.remote import access_log as access
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.remote import Remote
from parley._node.remote.requests import Call
from parley._node.transport.conditions import yield_to_loop

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
    if not (inside or timed) and access.logger.isEnabledFor(logging.DEBUG):
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
        if entry.rules and not await is_permitted(entry.rules, peer, name, roles):
            return ResultCode.NOT_AUTHORISED, None
        if entry.slots is not None:
            await _slot_and_room(entry.slots, peer)
            slots = entry.slots
        elif not peer.driver.can_send:
            await peer.driver.wait_writable()
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


async def _slot_and_room(slots: ConcurrencyLimit, peer: Remote) -> None:
    """Wait for a slot while there is room for an answer: a peer that reads none of them waits
    without a slot, and what a handler's answers hold is bounded by its `concurrency`."""
    driver, waiter = peer.driver, peer.backend.waiter
    await slots.acquire(peer, waiter)
    while not driver.can_send:
        slots.release()
        await driver.wait_writable()
        await slots.acquire(peer, waiter)


# Bytes of cost that a handler may yield before others run.
TURN_SIZE: Final = 64 * 1024


async def send_items(
    live: LiveConnection,
    call: IncomingCall,
    items: AsyncGenerator[Any, Any],
    encode_item: Callable[[Any], Awaitable[bytes]],
    send: Callable[[IncomingCall, bytes], bool],
) -> Outcome:
    """Send each of `items` as parts of the answer to `call`, up to the handler's end."""
    yielded = 0  # since others ran
    async with aclosing(items):
        async for item in items:
            payload = await encode_item(item)
            try:
                await send_part(live, call, payload, send)
            except PayloadTooLargeError:
                return ResultCode.PAYLOAD_TOO_LARGE, None
            except LocalError:
                break  # nobody reads on: the call, the stream or the connection is over
            yielded += len(payload) + EVENT_COST
            if yielded > TURN_SIZE:
                yielded = 0
                await yield_to_loop(live.backend)
    return ResultCode.ACCEPTED, None


async def drain_items(live: LiveConnection, items: AsyncGenerator[Any, Any]) -> Outcome:
    """Run a handler that yields for what it does: what it yields goes nowhere."""
    yielded = 0
    async with aclosing(items):
        async for _ in items:
            yielded += EVENT_COST
            if yielded > TURN_SIZE:
                yielded = 0
                await yield_to_loop(live.backend)
    return ResultCode.ACCEPTED, None


async def send_part(
    live: LiveConnection,
    call: IncomingCall,
    payload: bytes,
    send: Callable[[IncomingCall, bytes], bool],
) -> None:
    """Send one part of an answer once there are room and credit for it.

    Raises:
        LocalError: nobody reads on, or it is too large.
    """
    await live.wait_writable()
    while not send(call, payload):
        await _credit(live, call)
        await live.wait_writable()


async def _credit(live: LiveConnection, call: IncomingCall) -> None:
    """Wait until there may be credit."""
    waiter = live.backend.waiter()
    call.add_waker(waiter.wake)
    try:
        await waiter
    finally:
        call.remove_waker(waiter.wake)


async def decide(
    topic: Topic[Any],
    request: SubscribeRequest,
    handlers: Handlers,
    supercategory: Supercategory | None,
) -> Outcome:
    """Whether the peer of a request may subscribe, in whatever dialect: a code of section 9, and
    data. Who may at all is asked first, inside of the interceptors there are."""
    now = request.peer.backend.now
    began = now()
    outcome = await _intercepted(topic, request, handlers, supercategory)
    # Looked at last: forwarding may have begun while a handler or interceptor took its time.
    if outcome[0] == ResultCode.ACCEPTED and topic.comes_from(request.peer.node_id):
        outcome = ResultCode.REJECTED, FORWARD_LOOP
    if access.logger.isEnabledFor(logging.DEBUG):
        access.log_answered(request.peer, "topic", topic.name, outcome[0], now() - began)
    return outcome


async def _intercepted(
    topic: Topic[Any],
    request: SubscribeRequest,
    handlers: Handlers,
    supercategory: Supercategory | None,
) -> Outcome:
    chain = handlers.interceptors.subscribe_in
    if not chain:
        return await _decide(topic, request, handlers, supercategory)

    async def proceed(one: Intercepted) -> Any:
        request.data = one.data
        code, data = await _decide(topic, request, handlers, supercategory)
        if code:
            raise CallRefused(code, data)
        return data

    one = Intercepted(chain, request.peer, topic.name, request.data, request=request)
    try:
        return ResultCode.ACCEPTED, await chain.run(one, proceed)
    except APPLICATION_ERRORS as error:
        failure = sole_error(error)
        if isinstance(failure, CallRefused) and not failure.received:
            return failure.code, failure.data
        handlers.interceptors.log_failure(request.peer.backend.now(), "subscribe", topic.name)
    return FAILED


async def _decide(
    topic: Topic[Any],
    request: SubscribeRequest,
    handlers: Handlers,
    supercategory: Supercategory | None,
) -> Outcome:
    if not await is_permitted(topic.rules, request.peer, topic.name, handlers.roles):
        return ResultCode.NOT_AUTHORISED, None
    return await _ask_handler(topic, request, handlers, supercategory)


async def _ask_handler(
    topic: Topic[Any],
    request: SubscribeRequest,
    handlers: Handlers,
    supercategory: Supercategory | None,
) -> Outcome:
    """What the topic's handler says, if it has one."""
    entry = handlers.subscribes.find(topic.name)
    if entry is None:
        return ResultCode.ACCEPTED, None
    if not entry.takes(supercategory):
        return ResultCode.WRONG_SUPERCATEGORY, None
    try:
        data = entry.handler(request)
        if inspect.isawaitable(data):
            data = await data
    except APPLICATION_ERRORS as error:
        failure = sole_error(error)
        if isinstance(failure, CallRefused) and not failure.received:
            return failure.code, failure.data
        log_failure(entry, topic.name, request.peer, "the subscription handler of %r")
    else:
        return ResultCode.ACCEPTED, data
    return FAILED
