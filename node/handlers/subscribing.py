"""Decides whether a peer may subscribe to a topic, in whatever dialect it asks."""

import inspect
from typing import Any

from parley._node.errors import APPLICATION_ERRORS, CallRefused, sole_error
from parley._node.handlers.interceptors import Intercepted
from parley._node.handlers.registry import Handlers
from parley._node.handlers.rules import permitted
from parley._node.handlers.running import FAILED, Outcome, log_failure
from parley._node.handlers.topic import FORWARD_LOOP, SubscribeRequest, Topic
from parley._node.protocol.codes import ResultCode, Supercategory
from parley._node.remote import access_log as access


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
    if access.logs_answers():
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
    if not await permitted(topic.rules, request.peer, topic.name, handlers.roles):
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
