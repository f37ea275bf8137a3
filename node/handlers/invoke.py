"""Runs handlers for requests in every dialect and sends the items that they yield.

The result is always a code and a value; details of failures are only logged.
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

# A code of section 9 and the value of the answer.
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
    """Run the handler of `entry` for a request from `peer` and return its result code and value.

    `take_items` processes the items of a generator and returns the outcome. The duration is logged
    if debug logging is enabled, unless the caller has `timed` it. Cancellation propagates. When
    called from `inside` interceptors, exceptions propagate to them instead of being converted to a
    result.
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
            data = await entry.chain.run(around.intercepted(), around.proceed)
            return ResultCode.ACCEPTED, data
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
        # A received refusal belongs to a call that the handler itself made, so it isn't passed on.
        if isinstance(failure, CallRefused) and not failure.received:
            return failure.code, failure.data
        log_failure(entry, name, peer)
        return FAILED
    finally:
        if slots is not None:
            slots.release()
    return ResultCode.ACCEPTED, result


class _Around:
    """Runs one request's handler inside its interceptors."""

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
        assert chain is not None  # Called only if there are interceptors.
        data = headers = None
        if isinstance(request, Call):
            data, headers = request.data, request.headers
        return Intercepted(chain, self._peer, self._name, data, headers, request=request)

    async def proceed(self, one: Intercepted) -> Any:
        """Check permissions, wait for a slot and run the handler.

        Returns the data of its answer, or None if the answer was sent in items.

        Raises:
            CallRefused: the peer is not permitted, or the handler refused; exceptions of the
                handler also propagate.
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
    """Log the current exception, rate-limited per handler because peers can cause it."""
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
    """Wait for a slot while the connection can send.

    A peer that doesn't read its answers waits without a slot, so `concurrency` limits the memory of
    a handler's answers.
    """
    driver, waiter = peer.driver, peer.backend.waiter
    await slots.acquire(peer, waiter)
    while not driver.can_send:
        slots.release()
        await driver.wait_writable()
        await slots.acquire(peer, waiter)


# Bytes of cost that a handler can yield before other tasks run.
TURN_SIZE: Final = 64 * 1024


async def send_items(
    live: LiveConnection,
    call: IncomingCall,
    items: AsyncGenerator[Any, Any],
    encode_item: Callable[[Any], Awaitable[bytes]],
    send: Callable[[IncomingCall, bytes], bool],
) -> Outcome:
    """Send each of `items` as a part of the answer to `call`, until the handler ends."""
    yielded = 0  # Since other tasks last ran.
    async with aclosing(items):
        async for item in items:
            payload = await encode_item(item)
            try:
                await send_part(live, call, payload, send)
            except PayloadTooLargeError:
                return ResultCode.PAYLOAD_TOO_LARGE, None
            except LocalError:
                break  # The call, the stream or the connection has ended.
            yielded += len(payload) + EVENT_COST
            if yielded > TURN_SIZE:
                yielded = 0
                await yield_to_loop(live.backend)
    return ResultCode.ACCEPTED, None


async def drain_items(live: LiveConnection, items: AsyncGenerator[Any, Any]) -> Outcome:
    """Run a generator only for its effects and discard its items."""
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
    """Send one part of an answer when there are capacity and credit for it.

    Raises:
        LocalError: the answer is no longer wanted, or the part is too large.
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
    """Decide whether a peer may subscribe, in any dialect; return a code of section 9 and data.

    Permissions are checked before the topic's handler runs, inside the interceptors.
    """
    now = request.peer.backend.now
    began = now()
    outcome = await _intercepted(topic, request, handlers, supercategory)
    # Check this last: forwarding may have begun while a handler or interceptor was running.
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
        data = await chain.run(one, proceed)
    except APPLICATION_ERRORS as error:
        failure = sole_error(error)
        if isinstance(failure, CallRefused) and not failure.received:
            return failure.code, failure.data
        handlers.interceptors.log_failure(request.peer.backend.now(), "subscribe", topic.name)
        return FAILED
    return ResultCode.ACCEPTED, data


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
    """Return the decision of the topic's handler, if it has one."""
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
