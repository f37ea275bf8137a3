"""Incoming requests (calls and subscriptions) and their responses (section 9).

Every request with a request ID gets exactly one final response, whatever its handler does.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Final, Protocol

from parley._lbm import keys
from parley._lbm.codec import Encodable, Value, peek_text
from parley._lbm.errors import LbmDecodeError
from parley._node.messaging.call_codec import (
    NO_ANSWER,
    FinalAnswer,
    decode_call,
    encode_end,
    encode_result,
)
from parley._node.messaging.deadline_queue import LONGEST_DEADLINE_MS, NO_SLOT, DeadlineQueue
from parley._node.messaging.topic_history import TopicPosition, read_position
from parley._node.protocol import event_types
from parley._node.protocol.codes import (
    CALL,
    CHUNK,
    LOST,
    MAIN_STREAM,
    NAMED,
    SIM,
    SUBSCRIBE,
    UNSUBSCRIBE,
    CloseCode,
    ResultCode,
)
from parley._node.protocol.connection import Connection
from parley._node.protocol.errors import (
    LocalError,
    LocalProtocolError,
    PayloadTooLargeError,
    RemoteProtocolError,
    violation,
)
from parley._node.protocol.event import Event
from parley._node.protocol.flow_control import SendCredit
from parley._node.protocol.limits import EVENT_COST, UNANSWERED_REQUESTS
from parley._node.protocol.memory_budget import REQUEST_WEIGHT, MemoryBudget
from parley._node.protocol.reports import WindowReceived
from parley._node.protocol.request_ids import LAST_ASYNC_ID, IncomingRequests

# Payloads up to this size are decoded before the handler is looked up.
SHORT_PAYLOAD: Final = 1_024
# The most queued events while a peer over its memory budget sends more requests.
UNREAD_EVENTS: Final = 4_096
# A longer response is replaced by `overloaded` when the memory budget is exhausted.
SHORT_ANSWER: Final = 512

Waker = Callable[[], None]


class IncomingCall:
    """An incoming request: a call, a subscription or (in a subclass) a named event.

    The constructor takes the request as received at the time `came`; `entry` is the registered
    handler. After the final response (`answered`), the handler's result is ignored. `deadline` is
    in seconds of the connection's clock. `cost` is the stream credit that the request uses until it
    is answered, `weight` its charge to the memory budget. `encoded` is a final response that was
    encoded early. `IncomingCalls` sets `entry` and `slot`; methods change everything else.
    """

    category: ClassVar[int] = SIM  # The category of its responses.

    __slots__ = (
        "_credit",
        "_wakers",
        "after",
        "answered",
        "async_id",
        "came",
        "cost",
        "data",
        "deadline",
        "encoded",
        "entry",
        "headers",
        "once",
        "slot",
        "stream",
        "subcategory",
        "topic",
        "weight",
        "window",
    )

    def __init__(
        self,
        subcategory: int,
        topic: str,
        fields: Mapping[int, Any],
        stream: int,
        async_id: int,
        weight: int,
        cost: int,
        entry: Any = None,
        came: float = 0.0,
    ) -> None:
        get = fields.get
        self.subcategory = subcategory
        self.topic = topic
        self.data: Any = get(keys.DATA)
        self.headers: Mapping[str, Value] = get(keys.HEADERS) or {}
        self.window: int | None = get(keys.WINDOW)
        self.once: bytes | None = get(keys.ONCE_KEY)
        self.after: TopicPosition | None = None
        if subcategory == SUBSCRIBE:
            self.after = read_position(fields)
        self.stream = stream
        self.async_id = async_id
        self.weight = weight
        self.cost = cost
        self.entry = entry
        self.came = came
        self.deadline: float | None = None
        deadline_ms: int | None = get(keys.DEADLINE_MS)
        if deadline_ms is not None:
            self.deadline = came + min(deadline_ms, LONGEST_DEADLINE_MS) / 1000
        self.slot: set[Any] = NO_SLOT
        self.answered = False
        self.encoded: FinalAnswer | None = None
        self._credit: SendCredit | None = None
        self._wakers: set[Waker] | None = None

    def end(self, account: MemoryBudget | None = None) -> None:
        """Ignore the handler's result from now on.

        With `account`, the charge is released. Without it, the handler is still running, and `end`
        must be called again when it returns.
        """
        self.answered = True
        self.slot.discard(self)
        if account is not None:
            account.release(self.weight)
            self.weight = 0

    def prepare(self, answer: FinalAnswer) -> None:
        """Encode the final response before it is sent."""
        self.encoded = answer

    def credit(self, window: int) -> SendCredit:
        """Return the credit for Chunks: at first `window`, unless the request specifies its own."""
        if self._credit is None:
            self._credit = SendCredit(self.window or window)
        return self._credit

    def add_waker(self, wake: Waker) -> None:
        """Call `wake` whenever another part of the response can be sent."""
        if self._wakers is None:
            self._wakers = set()
        self._wakers.add(wake)

    def remove_waker(self, wake: Waker) -> None:
        if self._wakers is not None:
            self._wakers.discard(wake)

    def wake(self) -> None:
        for wake in self._wakers or ():
            wake()


class CallRunner(Protocol):
    """Finds and runs the handlers of requests."""

    def find(self, subcategory: int, topic: str) -> object:
        """Return the handler's entry for a Call or Subscribe, or the code of a refusal."""

    def run(self, call: IncomingCall) -> None:
        """Start the handler of a request.

        A handler that has begun reports its end with `IncomingCalls.answer`; until then it is
        charged to the memory budget.
        """

    def stop(self, call: IncomingCall) -> bool:
        """Cancel the handler of a request; return whether it has begun."""

    def request_ended(self, call: IncomingCall | None, code: int) -> None:
        """Record that a request ended, or (None) was refused before it was registered."""


class BlockedAnswers:
    """Streamed responses that wait until the queue of their stream is empty.

    Chunks need no stream credit, but a queued Result before them does, so Chunks must not
    accumulate behind it. Stream 1 has no credit, so everything queued there is sent.
    """

    __slots__ = ("_connection", "waiting")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.waiting: dict[int, set[IncomingCall]] = {}

    def __len__(self) -> int:
        return len(self.waiting)

    def is_free(self, call: IncomingCall) -> bool:
        """Whether a Chunk for `call` can be queued; if not, the call is woken later.

        Raises:
            LocalError: the connection is closing.
        """
        stream = call.stream
        if stream == MAIN_STREAM or not self._connection.outbox.waiting(stream):
            return True
        self._connection.notify_writable(stream)
        self.waiting.setdefault(stream, set()).add(call)
        return False

    def writable(self, stream: int) -> None:
        """Wake the calls of a stream whose queue is empty, or which has ended."""
        for call in self.waiting.pop(stream, ()):
            call.wake()

    def forget(self, call: IncomingCall) -> None:
        calls = self.waiting.get(call.stream)
        if calls is not None:
            calls.discard(call)
            if not calls:
                del self.waiting[call.stream]


Begin = Callable[[IncomingCall], None]


class PerTopicQueue:
    """Subscribe and Unsubscribe requests of one peer, processed one at a time for each topic.

    A Subscribe can take time to be decided. Later requests for the same topic wait, so that the
    last one takes effect (docs/protocol.md appendix C, point 40). Waiting requests count as
    unanswered. Call `end` when a request is answered.
    """

    __slots__ = ("_beginning", "requests")

    def __init__(self) -> None:
        self._beginning: list[str] = []
        self.requests: dict[str, dict[IncomingCall, Begin]] = {}

    def is_free(self, topic: str) -> bool:
        """Whether a request for this topic would begin immediately."""
        return topic not in self.requests

    def take(self, request: IncomingCall, begin: Begin) -> None:
        """Call `begin` with the request, now or after earlier requests are answered."""
        requests = self.requests.get(request.topic)
        if requests is not None:
            requests[request] = begin
            return
        self.requests[request.topic] = {request: begin}
        self._advance(request.topic)

    def end(self, request: IncomingCall) -> None:
        requests = self.requests.get(request.topic)
        if requests is None:
            return
        was_first = request is next(iter(requests))
        del requests[request]
        if was_first and request.topic not in self._beginning:
            self._advance(request.topic)

    def clear(self) -> None:
        self.requests.clear()

    def _advance(self, topic: str) -> None:
        # Use a loop, because a peer can queue a thousand requests that are answered as soon as they
        # begin.
        requests = self.requests[topic]
        self._beginning.append(topic)
        while requests:
            request, begin = next(iter(requests.items()))
            begin(request)
            if request in requests:
                break
        self._beginning.remove(topic)
        if not requests:
            self.requests.pop(topic, None)


class IncomingCalls:
    """The unanswered requests of a peer on one connection; `runner` runs their handlers."""

    __slots__ = (
        "_account",
        "_blocked",
        "_connection",
        "_deadlines",
        "_runner",
        "_silent",
        "_unanswered",
        "turns",
    )

    def __init__(
        self,
        connection: Connection,
        deadlines: DeadlineQueue[Any],
        runner: CallRunner,
        *,
        count_limit: int = UNANSWERED_REQUESTS,
    ) -> None:
        self._connection = connection
        self._account = connection.account
        self._runner = runner
        self._unanswered: IncomingRequests[IncomingCall] = IncomingRequests(count_limit)
        # Requests without a request ID, which get no response.
        self._silent: dict[IncomingCall, None] = {}
        self._blocked = BlockedAnswers(connection)
        self._deadlines = deadlines
        self.turns = PerTopicQueue()

    def __len__(self) -> int:
        return len(self._unanswered) + len(self._silent)

    # Requests.

    def request_received(self, event: Event, now: float) -> bool:
        """Process a Call or Subscribe and start its handler.

        Returns whether the event's cost stays charged until the response.

        Raises:
            RemoteProtocolError: for the reasons that `require_free` documents.
        """
        stream, async_id, subcategory = event.stream, event.async_id, event.subcategory
        payload = event.payload
        if len(payload) > SHORT_PAYLOAD:
            code = self._early_refusal(subcategory, payload)
            if code:
                return self.refuse(stream, async_id, code)
        try:
            if subcategory == CALL:
                fields, weight = decode_call(payload) or event_types.CALL.read_weighed(payload)
            else:
                fields, weight = event_types.SUBSCRIBE.read_weighed(payload)
        except LbmDecodeError:
            return self.refuse(stream, async_id, ResultCode.MALFORMED)
        topic = fields[keys.TOPIC]
        # The entry of a Subscribe is looked up when it begins.
        entry = self._runner.find(CALL, topic) if subcategory == CALL else None
        if isinstance(entry, ResultCode) and entry:
            return self.refuse(stream, async_id, entry)
        if not async_id and subcategory == SUBSCRIBE:
            # Without a response, the subscriber would not learn the stream.
            self._connection.count_dropped()
            return False
        weight += REQUEST_WEIGHT
        call = IncomingCall(
            subcategory, topic, fields, stream, async_id, weight, event.cost, entry, now
        )
        if not self.admit(call):
            return self.refuse(stream, async_id, ResultCode.OVERLOADED)
        if call.deadline is not None:
            call.slot = self._deadlines.add(call, call.deadline)
        if subcategory == CALL:
            self._runner.run(call)
        else:
            self.turns.take(call, self._subscribe)
        return True

    def _early_refusal(self, subcategory: int, payload: bytes) -> ResultCode:
        """Refuse a long request, if possible without decoding it."""
        topic = peek_text(payload, keys.TOPIC) if subcategory == CALL else None
        if topic is not None:
            code = self._runner.find(CALL, topic)
            if isinstance(code, ResultCode) and code:
                return code
        return ResultCode.ACCEPTED if self.has_room(len(payload)) else ResultCode.OVERLOADED

    def _subscribe(self, call: IncomingCall) -> None:
        entry = self._runner.find(SUBSCRIBE, call.topic)
        if isinstance(entry, ResultCode) and entry:
            self.answer(call, entry)
        else:
            call.entry = entry
            self._runner.run(call)

    def admit(self, call: IncomingCall, *, always: bool = False) -> bool:
        """Register and charge a request; return False if that exceeds a limit (section 8).

        Unread responses are also charged, so a peer that doesn't read them cannot send more
        requests.

        Raises:
            RemoteProtocolError: for the reasons that `require_free` documents.
        """
        requests, account = self._unanswered, self._account
        most = requests.count_limit
        if always:
            account.charge(call.weight)
        elif (
            len(self._silent) >= most
            or len(requests.by_id) >= most
            or not account.try_charge(call.weight)
        ):
            return False
        if not call.async_id:
            self._silent[call] = None
            return True
        try:
            if self._connection.outbox.count > UNREAD_EVENTS:
                self._require_read()
            requests.add(call.stream, call.async_id, call)
        except RemoteProtocolError:
            account.release(call.weight)
            raise
        return True

    def has_room(self, weight: int) -> bool:
        """Whether a request of this weight is within the limits."""
        requests, most = self._unanswered, self._unanswered.count_limit
        if len(self._silent) >= most or len(requests.by_id) >= most:
            return False
        return self._account.has_room(weight)

    def require_free(self, stream: int, async_id: int) -> None:
        """Check that a request can use this request ID.

        Raises:
            RemoteProtocolError: an unanswered request has the same ID, or too many responses are
                queued because the peer doesn't read them.
        """
        if self._connection.outbox.count > UNREAD_EVENTS:
            self._require_read()
        if self._unanswered.get(stream, async_id) is not None:
            raise violation(f"async id {async_id} is used twice on stream {stream}")

    def _require_read(self) -> None:
        waiting = self._connection.outbox.count
        if waiting > LAST_ASYNC_ID or not self._account.has_room():
            reason = f"it does not read its answers: {waiting} events wait"
            raise RemoteProtocolError(CloseCode.OVERLOADED, reason)

    def cancel_received(self, event: Event, now: float) -> bool:
        try:
            request = event_types.CANCEL.read(event.payload)[keys.REQUEST]
        except LbmDecodeError:
            self._connection.count_dropped()
            return False
        call = self._unanswered.get(event.stream, request)
        if call is not None:
            self._abandon(call, ResultCode.CANCELLED)
        return False

    def expire(self, call: IncomingCall) -> None:
        """End a request whose deadline has passed."""
        self._abandon(call, ResultCode.DEADLINE_EXCEEDED)

    def stream_reset(self, stream: int) -> None:
        """Stop the handlers of a stream on which responses can no longer be sent."""
        silent = [call for call in self._silent if call.stream == stream]
        # The newest first, so that a queued request ends before it begins.
        for call in [*silent, *reversed(self._unanswered.end_stream(stream))]:
            self._abandon(call, ResultCode.CANCELLED)

    def connection_ended(self) -> None:
        """Stop all handlers."""
        self.turns.clear()
        for call in [*self._unanswered.end_all(), *self._silent]:
            call.end()
            self._runner.request_ended(call, LOST)
            self._stop_handler(call)
        self._silent.clear()

    def _abandon(self, call: IncomingCall, code: ResultCode) -> None:
        if not call.answered:
            call.end()
            self._finish(call, code, _encode_final(call, code))
            self._stop_handler(call)

    def _stop_handler(self, call: IncomingCall) -> None:
        if not self._runner.stop(call):  # A handler that has begun is charged until it returns.
            call.end(self._account)

    # Responses.

    def answer(
        self, call: IncomingCall, code: int, data: Encodable = None, stream: int = 0
    ) -> None:
        """Send the final response; a second one is ignored.

        The response to an accepted Subscribe includes `stream`; events queued there are sent after
        it.

        Raises:
            LbmEncodeError: `data` cannot be encoded; the request is still unanswered.
        """
        if call.answered:
            call.end(self._account)  # The handler continued after the caller had stopped waiting.
            return
        answer = call.encoded
        if answer is None:
            if not call.async_id:
                answer = NO_ANSWER
            elif call.category == NAMED:
                answer = encode_end(code, data)
            else:
                answer = encode_result(code, data, stream if call.subcategory == SUBSCRIBE else 0)
        call.end(self._account)  # Release the charge first, to free memory for the response.
        self._finish(call, code, answer, stream)

    def make(self, call: IncomingCall, code: int, data: Encodable = None) -> int:
        """Encode the final response before `answer` sends it, and return its size; raises as
        `answer`.
        """
        answer = call.encoded or _encode_final(call, code, data)
        call.prepare(answer)
        return len(answer[2])

    def refuse(
        self,
        stream: int,
        async_id: int,
        code: ResultCode,
        make: Callable[[int], FinalAnswer] = encode_result,
    ) -> bool:
        """Respond with only a code, which `make` encodes; drop a request without a request ID.

        Returns False, because its cost is returned.

        Raises:
            RemoteProtocolError: for the reasons that `require_free` documents.
        """
        self._runner.request_ended(None, code)
        if async_id:
            self.answer_at_once(stream, async_id, make(code))
        else:
            self._connection.count_dropped(charged=code != ResultCode.OVERLOADED)
        return False

    def answer_at_once(self, stream: int, async_id: int, answer: FinalAnswer) -> None:
        """Send a short answer to a request without a handler; raises as `require_free`."""
        self.require_free(stream, async_id)
        category, subcategory, payload = answer
        with suppress(LocalError):  # The connection is closing, or the stream has ended.
            self._connection.send(stream, async_id, category, subcategory, payload)

    def chunk(self, call: IncomingCall, payload: bytes) -> bool:
        """Send one item of a streamed response; False if there is no credit or the stream is
        blocked.

        Raises:
            LocalError: the caller no longer waits, the connection or stream has ended, or the item
                is too large.
        """
        credit = call.credit(self._connection.limits.stream_window)
        size = self.send_part(call, SIM, CHUNK, payload) if credit.left > 0 else 0
        if not size:
            return False
        credit.left -= size + EVENT_COST
        return True

    def send_part(self, call: IncomingCall, category: int, subcategory: int, payload: bytes) -> int:
        """Send a part of a response before the final one; return its size, or 0 if the stream is
        blocked.

        Raises:
            LocalError: for the reasons that `chunk` documents.
        """
        if call.answered or not call.async_id:
            # After the final response, another call can use the same ID.
            call_id = f"async id {call.async_id}, stream {call.stream}"
            raise LocalProtocolError(f"cannot answer the call ({call_id}): no caller waits for it")
        if not self._blocked.is_free(call):
            return 0
        return self._connection.send(call.stream, call.async_id, category, subcategory, payload)

    def window_received(self, report: WindowReceived) -> None:
        """Add credit for the Chunks of a response.

        Raises:
            RemoteProtocolError: `protocol-error`, the credit exceeds 2^31 - 1.
        """
        call = self._unanswered.get(report.stream, report.request)
        if call is not None:
            call.credit(self._connection.limits.stream_window).grant(report.credit)
            call.wake()

    def stream_writable(self, stream: int) -> None:
        """Continue streamed responses, because the queue of `stream` is empty."""
        self._blocked.writable(stream)

    def _finish(self, call: IncomingCall, code: int, answer: FinalAnswer, release: int = 0) -> None:
        """Remove a request and send its final response, which can `release` a stream."""
        self._runner.request_ended(call, code)
        if self._blocked.waiting:
            self._blocked.forget(call)
        stream, async_id = call.stream, call.async_id
        if call.cost:
            self._connection.consume(stream, call.cost)
        if not async_id:
            self._silent.pop(call, None)
        elif self._unanswered.by_id.pop(stream << 16 | async_id, None) is not None:
            connection = self._connection
            category, subcategory, payload = answer
            if len(payload) > SHORT_ANSWER and not self._account.has_room():
                category, subcategory, payload = _encode_final(call, ResultCode.OVERLOADED)
            try:
                try:
                    connection.send(
                        stream, async_id, category, subcategory, payload, releases=release
                    )
                except PayloadTooLargeError:
                    category, subcategory, payload = _encode_final(
                        call, ResultCode.PAYLOAD_TOO_LARGE
                    )
                    connection.send(
                        stream, async_id, category, subcategory, payload, releases=release
                    )
            except LocalError:  # The connection is closing, or the stream has ended.
                if release:
                    with suppress(LocalError):
                        self._connection.streams.release(release)
        if call.subcategory == SUBSCRIBE or call.subcategory == UNSUBSCRIBE:
            self.turns.end(call)


def _encode_final(call: IncomingCall, code: int, data: Encodable = None) -> FinalAnswer:
    return encode_end(code, data) if call.category == NAMED else encode_result(code, data)
