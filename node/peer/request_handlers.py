"""Runs an application's handlers for the requests of one peer: calls, calls with `once=`,
subscriptions and named events.

Each request gets exactly one response, whatever its handler does. The peer receives a code, the
handler's value or a fixed sentence; details go to the log.
"""

import logging
import marshal
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

import anyio

from parley._crypto.identity import NodeId
from parley._lbm import keys
from parley._lbm.codec import Encoded, encode, encode_slices, is_large
from parley._lbm.errors import LbmEncodeError
from parley._node.errors import CallRefused
from parley._node.handlers.invoke import (
    FAILED,
    TURN_SIZE,
    Outcome,
    decide,
    drain_items,
    run_handler,
    send_items,
    send_part,
)
from parley._node.handlers.permissions import is_permitted
from parley._node.handlers.registry import Entry, Handlers
from parley._node.handlers.topic import SubscribeRequest, Topic
from parley._node.logs import one_line
from parley._node.messaging.call_codec import FinalAnswer, encode_result
from parley._node.messaging.fanout import Fanout, Feed
from parley._node.messaging.feeds import HistoryFeed, StreamFeed
from parley._node.messaging.formats import FormatError, FormatName
from parley._node.messaging.idempotency import IdempotencyCache, IdempotentCall, fingerprint
from parley._node.messaging.incoming_calls import IncomingCall
from parley._node.messaging.named_events import NO_HANDLER, IncomingEmit
from parley._node.messaging.payloads import Payload, make_payload
from parley._node.messaging.requests import RequestMux
from parley._node.messaging.topics import Topics
from parley._node.protocol.codes import CALL, ResultCode
from parley._node.protocol.errors import ConnectionClosedError, LocalError
from parley._node.protocol.limits import ANSWER_PATIENCE, EVENT_COST, ONCE_RESULT
from parley._node.remote.access_log import log_refused
from parley._node.remote.live_connection import LiveConnection
from parley._node.remote.requests import Call, CallHandler, NamedEvent
from parley._node.transport.conditions import yield_to_loop
from parley._node.transport.loop import Runner

logger = logging.getLogger("parley.peer")
account_logger = logging.getLogger("parley.accounts")

# How many items are encoded per slice; takes about a millisecond.
SLICE: Final = 2_000


class HandlerTask:
    """The task that runs the handler of a request. The event loop sets `runner`."""

    __slots__ = ("begun", "cancelled", "runner")

    def __init__(self) -> None:
        self.begun = self.cancelled = False
        self.runner: Runner | None = None


class Responses:
    """The responses to the requests of one connection, and the `tasks` that produce them."""

    __slots__ = ("_handlers", "_live", "_one", "calls", "tasks")

    def __init__(self, live: LiveConnection, handlers: Handlers, calls: RequestMux) -> None:
        self.calls = calls
        self._live = live
        self._handlers = handlers
        self._one: anyio.Lock | None = None  # Held while a large answer is encoded.
        self.tasks: dict[IncomingCall, HandlerTask] = {}

    def spawn(
        self, call: IncomingCall, serve: Callable[[IncomingCall, HandlerTask], Awaitable[None]]
    ) -> None:
        """Run `serve` in a task, which must end with `send`."""
        task = self.tasks[call] = HandlerTask()
        task.runner = self._live.backend.spawn(serve, call, task)

    def stop(self, call: IncomingCall) -> bool:
        """Cancel the task of a request; return whether the task had begun."""
        task = self.tasks.pop(call, None)
        if task is None:
            return False
        task.cancelled = True
        if task.runner is not None:
            task.runner.cancel()
        return task.begun

    async def prepare(self, call: IncomingCall, code: int, data: Any) -> Outcome:
        """Encode a large answer in slices, so that other connections can run in between.

        Returns the arguments for `send`.
        """
        if not is_large(data, SLICE):
            return code, data
        try:
            return code, await self.encode_large(data)
        except CallRefused as refused:
            return refused.code, None
        except LbmEncodeError:
            self.log_unsent("the answer to %r", call.topic)
            return FAILED

    async def encode_large(self, data: Any) -> Any:
        """Encode a value in slices; return a value of an unsupported type unchanged.

        Each connection encodes one value at a time, and one slice of all connections is encoded per
        iteration of the event loop. The value is copied first, because the handler can change it
        later.

        Raises:
            LbmEncodeError: the value cannot be encoded.
            CallRefused: too many answers are waiting.
        """
        try:
            copy = marshal.dumps(data)
        except ValueError:
            return data
        account = self._live.core.answers
        if not account.has_room(len(copy)):
            raise CallRefused(ResultCode.OVERLOADED)
        account.charge(len(copy))
        if self._one is None:
            self._one = anyio.Lock()
        try:
            async with self._one:
                return await self._sliced(copy)
        finally:
            account.release(len(copy))

    async def _sliced(self, copy: bytes) -> Encoded:
        turns, pieces = self._handlers.encoding, list[bytes]()
        async with turns:
            value = marshal.loads(copy)  # noqa: S302 - `dumps` made these bytes
        slices = encode_slices(value, SLICE)
        while True:
            async with turns:
                piece = next(slices, None)
            if piece is None:
                return Encoded(b"".join(pieces))
            pieces.append(piece)

    async def wait_for_room(self, call: IncomingCall, code: int, data: Any) -> Outcome:
        """Wait until an answer can be written, so that it isn't lost because the connection is
        busy.

        Waits for a limited time and uses a limited amount of memory. Returns the arguments for
        `send`.
        """
        driver, account = self._live.driver, self._live.core.answers
        if driver.can_send or call.answered:
            return code, data
        try:
            size = self.calls.incoming.make(call, code, data)
        except (LbmEncodeError, FormatError):
            return code, data  # `send` reports the error.
        data = None  # Free the value, which is encoded now.
        if not account.has_room(size):
            return code, None
        account.charge(size)
        try:
            with anyio.move_on_after(ANSWER_PATIENCE):
                await driver.wait_writable()
        finally:
            account.release(size)
        return code, None

    def send(self, call: IncomingCall, code: int, data: Any = None) -> None:
        """Answer a request; if the answer cannot be encoded, answer that the handler failed."""
        self.tasks.pop(call, None)
        try:
            self.calls.incoming.answer(call, code, data)
        except (LbmEncodeError, FormatError):
            self.log_unsent("the answer to %r", call.topic)
            self.calls.incoming.answer(call, *FAILED)
        if self._live.draining:
            self._live.changed()

    def log_unsent(self, what: str, name: str) -> None:
        """Log the current exception: an answer could not be encoded."""
        now, text = self._live.backend.now(), what + " cannot be encoded"
        self._handlers.unsent.log(
            logger,
            logging.ERROR,
            now,
            text,
            name,
            exc_info=True,
            extra={"event": "answer.unsent", "topic": name},
        )


TOO_LONG = "the answer is longer than what is remembered"


class IdempotentCallHandlers:
    """The handlers of one peer's calls with `once`; `memory` is the node's cache of their
    results.
    """

    __slots__ = ("_answers", "_handlers", "_live", "_memory")

    def __init__(
        self, live: LiveConnection, handlers: Handlers, answers: Responses, memory: IdempotencyCache
    ) -> None:
        self._live = live
        self._handlers = handlers
        self._answers = answers
        self._memory = memory

    def run(self, call: IncomingCall) -> None:
        """Answer a call that has a key, from the cache or by running its handler."""
        live = self._live
        who = live.node_id
        if not call.async_id:
            live.core.count_dropped()  # A message without a request ID cannot be answered.
            self._answers.send(call, ResultCode.NOT_ONCE)
        elif who is None or not call.entry.once:
            self._answers.send(call, ResultCode.NOT_ONCE)
        else:
            self._answers.spawn(call, partial(self._serve, who))

    async def _serve(self, who: NodeId, call: IncomingCall, task: HandlerTask) -> None:
        live, answers, entry = self._live, self._answers, call.entry
        if call.answered:
            return  # It was cancelled before its task began.
        task.begun = True
        outcome: Outcome = (ResultCode.CANCELLED, None)
        try:
            # Check at each call, because the permission may have been revoked.
            if await is_permitted(entry.rules, live.remote, call.topic, self._handlers.roles):
                outcome = await self._answered(call, who)
            else:
                outcome = (ResultCode.NOT_AUTHORISED, None)
            if not live.driver.can_send:
                outcome = await answers.wait_for_room(call, *outcome)
        finally:
            # Every call gets exactly one answer, even if it is cancelled.
            answers.send(call, *outcome)

    async def _answered(self, call: IncomingCall, who: NodeId) -> Outcome:
        """Return the answer, or the code that refuses the call."""
        found = await self._found(call, who)
        if isinstance(found, ResultCode):
            return found, None
        await self._wait(call, found)
        assert found.answer is not None  # Set, because `_wait` has returned.
        call.prepare(found.answer)
        return found.code, None

    async def _found(self, call: IncomingCall, who: NodeId) -> IdempotentCall | ResultCode:
        """Return the cached call of this key, or start a new one when the cache has capacity."""
        memory, backend = self._memory, self._live.backend
        assert call.once is not None
        question = fingerprint(call.topic, call.data)
        while (found := memory.find(who, call.once, question, backend.now())) is None:
            begun = memory.begin(who, call.once, question, call.weight)
            if begun is not None:
                self._begin(begun, call)
                return begun
            if not memory.may_wait(who):
                found = ResultCode.OVERLOADED
                break
            waiter = backend.waiter()
            memory.queue(who, waiter.wake)
            try:
                await waiter
            except BaseException:
                memory.leave_line(who, waiter.wake)
                raise
        memory.next_in_line(who)  # This caller may have been woken without using the free capacity.
        return found

    async def _wait(self, call: IncomingCall, once: IdempotentCall) -> None:
        """Wait for the answer. If the last waiting caller cancels, stop the handler."""
        once.callers += 1
        waiter = self._live.backend.waiter()
        try:
            while once.answer is None:
                once.waiting.add(waiter.wake)
                await waiter
        finally:
            once.callers -= 1
            once.waiting.discard(waiter.wake)
            if self._is_unwanted(call, once):
                self._stop(once, ResultCode.CANCELLED)

    def _is_unwanted(self, call: IncomingCall, once: IdempotentCall) -> bool:
        """Whether the last waiting caller cancelled, rather than its session or deadline having
        ended.
        """
        if once.answer is not None or once.callers:
            return False
        live = self._live
        late = call.deadline is not None and live.backend.now() >= call.deadline
        return call.answered and not late and live.ended is None

    # Running the handler.

    def _begin(self, once: IdempotentCall, call: IncomingCall) -> None:
        backend = self._live.backend
        once.runner = backend.spawn(self._run, once, call)
        if call.deadline is not None:
            once.timer = backend.call_at(
                call.deadline, lambda: self._stop(once, ResultCode.DEADLINE_EXCEEDED)
            )

    async def _run(self, once: IdempotentCall, call: IncomingCall) -> None:
        once.begun = True
        remote = self._live.remote
        try:
            if once.answer is None:  # Otherwise it was stopped before it began.
                outcome = await run_handler(
                    replace(call.entry, rules=()),  # `_serve` has already checked the permissions.
                    Call(remote, call),
                    remote,
                    call.topic,
                    self._handlers.roles,
                    self._no_items,
                )
                outcome = await self._answers.prepare(call, *outcome)
                answer = self._final(call, outcome)
                self._memory.answer(once, outcome[0], answer, self._live.backend.now())
        finally:
            self._end(once)

    def _stop(self, once: IdempotentCall, code: ResultCode) -> None:
        """Stop the handler and answer with `code`."""
        if once.answer is None:
            self._memory.answer(once, code, encode_result(code), self._live.backend.now())
            once.runner.cancel()
            if not once.begun:
                self._end(once)

    def _end(self, once: IdempotentCall) -> None:
        if once.timer is not None:
            once.timer.cancel()
        self._memory.end(once)

    def _final(self, call: IncomingCall, outcome: Outcome) -> FinalAnswer:
        """Encode the handler's result.

        A result that is too long to cache counts as a failure even for the first caller, because
        all callers with the same key must get the same answer.
        """
        try:
            answer = encode_result(*outcome)
        except LbmEncodeError:
            self._answers.log_unsent("the answer to %r", call.topic)
            return encode_result(*FAILED)
        if len(answer[2]) <= ONCE_RESULT:
            return answer
        now, text = self._live.backend.now(), "the answer to %r is too long to be remembered"
        call.entry.failures.log(
            logger,
            logging.ERROR,
            now,
            text,
            call.topic,
            extra={"event": "answer.not-remembered", "topic": call.topic},
        )
        return encode_result(ResultCode.HANDLER_FAILED, TOO_LONG)

    async def _no_items(self, items: AsyncGenerator[Any, Any]) -> Outcome:
        """Refuse an answer in items, which cannot be cached; the generator has not run yet."""
        await items.aclose()
        return ResultCode.NOT_ONCE, None


# The default format of replies to native peers.
NATIVE_FORMAT: Final[FormatName] = "lbm"


class RequestHandlers:
    """Runs the handlers of one peer's calls, subscriptions and named events, and decides on its
    logins.

    `published` contains the node's topics, `cache` its results of calls with `once`.
    """

    __slots__ = ("_handlers", "_live", "_once", "_published", "_responses", "calls", "topics")

    def __init__(
        self,
        live: LiveConnection,
        handlers: Handlers,
        published: Mapping[str, Topic],
        cache: IdempotencyCache,
    ) -> None:
        self._live = live
        self._handlers = handlers
        self._published = published
        self.calls = calls = RequestMux(live.core, self)
        self.topics = Topics(live.core, calls.incoming, published.__contains__)
        self._responses = Responses(live, handlers, calls)
        self._once = IdempotentCallHandlers(live, handlers, self._responses, cache)

    def find(self, subcategory: int, topic: str) -> Entry[CallHandler] | Topic | ResultCode:
        """Return the handler or topic of a request, or the code that refuses the request."""
        live = self._live
        if live.driver.path and not self._handlers.exported(topic):
            return self._refused("call", topic, ResultCode.NOT_AUTHORISED)
        if subcategory != CALL:
            return self._find_topic(topic)
        entry = self._handlers.calls.find(topic)
        if entry is None:
            return self._refused("call", topic, ResultCode.TOPIC_NOT_FOUND)
        if entry.supercategories is not None and not entry.takes(live.supercategory):
            return self._refused("call", topic, ResultCode.WRONG_SUPERCATEGORY)
        return self._refused("call", topic, ResultCode.OVERLOADED) if live.draining else entry

    def run(self, call: IncomingCall) -> None:
        """Run the handler that `find` returned."""
        if call.subcategory != CALL:
            self._responses.spawn(call, self._serve_subscribe)
        elif call.once is not None:
            self._once.run(call)
        else:
            task = self._responses.tasks[call] = HandlerTask()
            self._live.driver.pending_tasks.append((self._serve_call, call, task))

    def stop(self, call: IncomingCall) -> bool:
        """Cancel the handler of a request; return whether the handler had begun."""
        return self._responses.stop(call)

    def request_ended(self, call: IncomingCall | None, code: int) -> None:
        """Count a finished call or event, or a request that was refused before its handler ran
        (None).
        """
        if call is None:
            self._live.metrics.refused[code] += 1
        elif type(call.entry) is Entry:  # The topic counts its own subscriptions.
            call.entry.tally.add(code, self._live.backend.now() - call.came)

    async def _serve_call(self, call: IncomingCall, task: HandlerTask) -> None:
        if call.answered:
            return  # The caller no longer waits.
        remote, answers = self._live.remote, self._responses
        task.begun = True
        outcome: Outcome = (ResultCode.CANCELLED, None)
        try:
            outcome = await run_handler(
                call.entry,
                Call(remote, call),
                remote,
                call.topic,
                self._handlers.roles,
                lambda items: self._stream_answer(call, items),
            )
            if call.async_id and is_large(outcome[1], SLICE):
                answer = answers.prepare(call, *outcome)
                outcome = (ResultCode.CANCELLED, None)
                outcome = await answer
            if not self._live.driver.can_send:
                room = answers.wait_for_room(call, *outcome)
                # From here on, only the encoded answer is kept in memory.
                outcome = (
                    ResultCode.CANCELLED,
                    None,
                )
                outcome = await room
        finally:
            # Every call gets exactly one answer, even if it is cancelled.
            answers.send(call, *outcome)

    async def _stream_answer(self, call: IncomingCall, items: AsyncGenerator[Any, Any]) -> Outcome:
        """Send the items of a handler as Chunks, as fast as the peer reads them."""

        async def encode_item(item: Any) -> bytes:
            if is_large(item, SLICE):
                item = await self._responses.encode_large(item)
            return encode({} if item is None else {keys.DATA: item})

        chunk = self.calls.incoming.chunk
        return await send_items(self._live, call, items, encode_item, chunk)

    # Subscriptions.

    def _find_topic(self, name: str) -> Topic | ResultCode:
        """Return the topic of a Subscribe, or the code that refuses it."""
        found = self._published_topic(name)
        return self._refused("topic", name, found) if isinstance(found, ResultCode) else found

    def _published_topic(self, name: str) -> Topic | ResultCode:
        topic = self._published.get(name)
        if topic is None:
            elsewhere = self._handlers.find_elsewhere
            found = None if elsewhere is None else elsewhere(name, self._live.remote)
            if not isinstance(found, Topic):
                return ResultCode.TOPIC_NOT_FOUND if found is None else found
            topic = found
        if not topic.takes(self._live.supercategory):
            return ResultCode.WRONG_SUPERCATEGORY
        if self.topics.is_subscribed(name):
            return ResultCode.ALREADY_SUBSCRIBED
        return ResultCode.OVERLOADED if self._live.draining else topic

    async def _serve_subscribe(self, call: IncomingCall, task: HandlerTask) -> None:
        topic: Topic = call.entry
        live, answers = self._live, self._responses
        code: int = ResultCode.CANCELLED
        data: Any = None
        task.begun = True
        try:
            request = SubscribeRequest(live.remote, call)
            code, data = await decide(topic, request, self._handlers, live.supercategory)
            if code == ResultCode.ACCEPTED:
                self._accept(await topic.open(request, call.after), call, data)
                return
        except CallRefused as refused:
            code, data = refused.code, refused.data
        except LbmEncodeError:
            answers.log_unsent("the answer to a subscription of %r", topic.name)
            code, data = FAILED
        finally:
            # Every request gets exactly one answer, even if it is cancelled.
            answers.send(call, code, data)

    def _accept(self, topic: Topic, call: IncomingCall, data: Any) -> None:
        live = self._live
        data, after = topic.begin(data, call.after)

        def make(stream: int, on_closed: Callable[[StreamFeed], None]) -> StreamFeed:
            def feed(fanout: Fanout, closed: Callable[[Feed], None]) -> StreamFeed:
                where = live.core, stream, live.limits.max_payload, live.remote, closed
                if fanout.kept is None:
                    return StreamFeed(fanout, *where)
                return HistoryFeed(fanout, fanout.kept, after, *where)

            return topic.join(feed, on_closed)

        self.topics.open_feed(call, data, make, remembers=topic.position is not None)

    # Named events.

    def find_event(self, namespace: str, name: str) -> Entry[Any] | ResultCode:
        """Return the handler of an event, or the code that refuses the event."""
        if self._live.path and not self._handlers.exported(name):
            return self._refused("event", name, ResultCode.NOT_AUTHORISED)
        entry = self._handlers.find_event(namespace, name)
        if entry is None:
            return NO_HANDLER
        if not entry.takes(self._live.supercategory):
            return self._refused("event", name, ResultCode.WRONG_SUPERCATEGORY)
        return self._refused("event", name, ResultCode.OVERLOADED) if self._live.draining else entry

    def run_event(self, emit: IncomingEmit) -> None:
        """Run the handler that `find_event` returned."""
        task = self._responses.tasks[emit] = HandlerTask()
        self._live.driver.pending_tasks.append((self._serve_event, emit, task))

    async def _serve_event(self, emit: IncomingEmit, task: HandlerTask) -> None:
        if emit.answered:
            return  # The emitter no longer waits.
        remote, answers = self._live.remote, self._responses
        task.begun = True
        outcome: Outcome = (ResultCode.CANCELLED, None)
        port = NativeReplies(self._live, answers, emit)
        try:
            outcome = await run_handler(
                emit.entry,
                NamedEvent(remote, emit.topic, emit.namespace, emit.payload, port),
                remote,
                emit.topic,
                self._handlers.roles,
                port.send_all,
            )
            if emit.async_id and is_large(outcome[1], SLICE):
                answer = answers.prepare(emit, *outcome)
                outcome = (ResultCode.CANCELLED, None)
                outcome = await answer
            if not self._live.driver.can_send:
                room = answers.wait_for_room(emit, *outcome)
                # From here on, only the encoded answer is kept in memory.
                outcome = (
                    ResultCode.CANCELLED,
                    None,
                )
                outcome = await room
        finally:
            # Every event ends exactly once, even if it is cancelled.
            answers.send(emit, *outcome)

    # Accounts.

    def login(self, exports: Sequence[str] | None) -> ResultCode:
        """Process a Login with these exports, or a Logout (None); return the code of the answer.

        Logins through a tunnel are refused: an account can be reached only over its direct link.
        """
        live, accounts = self._live, self._handlers.accounts
        who = live.node_id
        if accounts is None or who is None or live.path:
            return ResultCode.NOT_AUTHORISED
        if exports is None:
            return accounts.logout(who, live)
        if live.draining:
            return ResultCode.OVERLOADED
        code = accounts.login(who, live)
        if code == ResultCode.ACCEPTED:
            named = one_line(", ".join(exports)) or "nothing"
            now, text = live.backend.now(), "%s logged in, and exports %s"
            self._handlers.logins.log(
                account_logger,
                logging.INFO,
                now,
                text,
                who,
                named,
                extra={"event": "account.login", "peer": who},
            )
        return code

    def connection_ended(self) -> None:
        """Log the peer out when its session ends."""
        accounts, who = self._handlers.accounts, self._live.node_id
        if accounts is not None and who is not None:
            accounts.logout(who, self._live)

    def _refused(self, kind: str, name: str, code: ResultCode) -> ResultCode:
        live = self._live
        log_refused(self._handlers.refused, live.remote, kind, name, code, live.backend.now())
        return code


class NativeReplies:
    """Sends a handler's replies to one event of a native peer."""

    __slots__ = ("_answers", "_emit", "_live", "_said", "format")

    def __init__(self, live: LiveConnection, answers: Responses, emit: IncomingEmit) -> None:
        self._live = live
        self._answers = answers
        self._emit = emit
        self._said = 0  # Bytes of cost sent since other tasks last ran.
        self.format: FormatName = NATIVE_FORMAT

    @property
    def wanted(self) -> bool:
        """Whether the emitter waits for replies."""
        return bool(self._emit.async_id) and not self._emit.answered

    async def reply(self, name: str, namespace: str, payload: Payload) -> None:
        """Send a reply when there is capacity; its name is sent only if it differs from the event's
        name.

        Raises:
            PeerClosedError: the connection has ended.
            PayloadTooLargeError: the reply is too large.
            LbmEncodeError: the reply cannot be encoded.
            FormatError: the reply cannot be encoded in its format.
        """
        live, named = self._live, self._answers.calls.named
        body = named.encode_reply(self._emit, name, payload, namespace)
        try:
            await send_part(live, self._emit, body, named.reply)
        except ConnectionClosedError as error:
            raise live.closed_error() from error
        except LocalError:
            if self.wanted:
                raise
            # The emitter no longer waits, so no reply is lost.
        self._said += len(body) + EVENT_COST
        if self._said > TURN_SIZE:
            self._said = 0
            await yield_to_loop(live.backend)

    async def send_all(self, items: AsyncGenerator[Any, Any]) -> Outcome:
        """Reply with each item of the handler's generator."""
        named, emit = self._answers.calls.named, self._emit

        async def encode_item(item: Any) -> bytes:
            if self.format == NATIVE_FORMAT and is_large(item, SLICE):
                item = await self._answers.encode_large(item)
            return named.encode_reply(emit, "", make_payload(item, self.format))

        if emit.async_id:
            return await send_items(self._live, emit, items, encode_item, named.reply)
        return await drain_items(self._live, items)
