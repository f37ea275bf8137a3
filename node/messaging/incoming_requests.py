"""The peer's requests, calls and subscriptions, and our responses (section 9).

Every request with an async id gets exactly one final response, whatever its handler does.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, ClassVar, Final

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
    LocalProtocolError,
    PayloadTooLargeError,
    RemoteProtocolError,
    violation,
)
from parley._node.protocol.flow_control import SendCredit
from parley._node.protocol.limits import EVENT_COST, UNANSWERED_REQUESTS
from parley._node.protocol.memory_budget import REQUEST_WEIGHT
from parley._node.protocol.reports import EventReceived, WindowReceived
from parley._node.protocol.request_ids import LAST_ASYNC_ID, IncomingRequests

# A payload up to this size is decoded before the handler is looked up.
SHORT_PAYLOAD: Final = 1_024
# Events that may wait to be written while a peer over its memory budget sends more requests.
UNREAD_EVENTS: Final = 4_096
# A longer response is replaced by `overloaded` when the memory budget is exhausted.
SHORT_ANSWER: Final = 512


class IncomingCall:
    """A request of the peer: a call, a subscription or (in a subclass) a named event.

    The constructor takes what the peer sent; `entry` is the registered handler. Whoever runs
    the handler sets `begun` and `runner`, and `on_credit` while it waits to send a Chunk.
    After the final response (`answered`) the handler's result is ignored. `deadline` is in
    seconds of the connection's clock. `cost` is the stream credit that the request keeps until
    it is answered, `weight` its charge to the memory budget. `made` is a final response that was
    encoded early.
    """

    category: ClassVar[int] = SIM  # of its responses

    __slots__ = (
        "after",
        "answered",
        "async_id",
        "begun",
        "came",
        "cost",
        "credit",
        "data",
        "deadline",
        "entry",
        "headers",
        "made",
        "on_credit",
        "once",
        "runner",
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
        self.stream = stream
        self.async_id = async_id
        self.weight = weight
        self.cost = cost
        self.entry = entry
        self.came = came
        self.deadline: float | None = None
        self.slot: set[Any] = NO_SLOT
        self.credit: SendCredit | None = None
        self.on_credit: Callable[[], None] | None = None
        self.answered = self.begun = False
        self.made: FinalAnswer | None = None
        self.runner: Any = None


# Called when a request is over, with its code; with None for a request refused before it existed.
FinalCallback = Callable[[IncomingCall | None, int], None]


def ignore_final(call: IncomingCall | None, code: int) -> None:
    """A FinalCallback that does nothing."""


class BlockedAnswers:
    """Streamed responses that wait until their stream's queue is empty, by stream.

    Chunks need no stream credit, but a queued Result before them does, so they must not
    pile up behind it. Stream 1 has no credit: everything queued there is written.
    """

    __slots__ = ("_connection", "waiting")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.waiting: dict[int, set[IncomingCall]] = {}

    def __len__(self) -> int:
        return len(self.waiting)

    def is_free(self, call: IncomingCall) -> bool:
        """Whether a Chunk for `call` may be queued; if not, its `on_credit` is called later.

        Raises:
            LocalProtocolError: the connection is closing.
        """
        stream = call.stream
        if stream == MAIN_STREAM or not self._connection.outbox.waiting(stream):
            return True
        self._connection.notify_writable(stream)
        self.waiting.setdefault(stream, set()).add(call)
        return False

    def writable(self, stream: int) -> None:
        """The stream's queue is empty, or the stream is over."""
        for call in self.waiting.pop(stream, ()):
            if call.on_credit is not None:
                call.on_credit()

    def forget(self, call: IncomingCall) -> None:
        calls = self.waiting.get(call.stream)
        if calls is not None:
            calls.discard(call)
            if not calls:
                del self.waiting[call.stream]


Begin = Callable[[IncomingCall], None]


class PerTopicQueue:
    """Subscribe and Unsubscribe requests of one peer, processed one at a time for each topic.

    A Subscribe can take time to be decided. Later requests about the same topic wait for it, so
    that the last one wins (docs/protocol.md appendix C, point 40). Waiting requests are
    unanswered and bounded as such. Call `end` when a request is answered.
    """

    __slots__ = ("_beginning", "requests")

    def __init__(self) -> None:
        self._beginning: set[str] = set()
        self.requests: dict[str, dict[IncomingCall, Begin]] = {}

    def is_free(self, topic: str) -> bool:
        """Whether a request about this topic would begin immediately."""
        return topic not in self.requests

    def take(self, request: IncomingCall, begin: Begin) -> None:
        """Call `begin` with the request, now or when those before it are answered."""
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
        # A loop: a peer can queue a thousand requests that are answered as soon as they begin.
        requests = self.requests[topic]
        self._beginning.add(topic)
        while requests:
            request, begin = next(iter(requests.items()))
            begin(request)
            if request in requests:
                break
        self._beginning.discard(topic)
        if not requests:
            self.requests.pop(topic, None)


class IncomingCalls:
    """The peer's unanswered requests on one connection.

    `find` returns the handler's entry for a subcategory (Call, Subscribe) and topic, or the
    code of a refusal. `run` starts the handler of a request, `stop` cancels it. A handler that
    was `begun` reports its end with `answer`, and is charged to the memory budget until then.
    """

    __slots__ = (
        "_account",
        "_blocked",
        "_connection",
        "_deadlines",
        "_find",
        "_on_final",
        "_run",
        "_silent",
        "_stop",
        "_unanswered",
        "turns",
    )

    def __init__(
        self,
        connection: Connection,
        deadlines: DeadlineQueue[Any],
        find: Callable[[int, str], object],
        run: Callable[[IncomingCall], None],
        stop: Callable[[IncomingCall], None],
        *,
        on_final: FinalCallback = ignore_final,
        count_limit: int = UNANSWERED_REQUESTS,
    ) -> None:
        self._connection = connection
        self._account = connection.account
        self._find = find
        self._run = run
        self._stop = stop
        self._on_final = on_final
        self._unanswered: IncomingRequests[IncomingCall] = IncomingRequests(count_limit)
        self._silent: set[IncomingCall] = set()  # requests without async id: no response
        self._blocked = BlockedAnswers(connection)
        self._deadlines = deadlines
        self.turns = PerTopicQueue()

    def __len__(self) -> int:
        return len(self._unanswered) + len(self._silent)

    # Requests.

    def request_received(self, event: EventReceived, now: float) -> bool:
        """Process a Call or Subscribe and start its handler; returns whether the event's cost
        stays charged until the response.

        Raises:
            RemoteProtocolError: as `require_free`.
        """
        stream, async_id, _, subcategory, payload, cost = event
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
        # The entry of a Subscribe is looked up when its turn has come.
        entry = self._find(CALL, topic) if subcategory == CALL else None
        if isinstance(entry, ResultCode) and entry:
            return self.refuse(stream, async_id, entry)
        if not async_id and subcategory == SUBSCRIBE:
            self._connection.count_dropped()  # its response would have named the stream
            return False
        weight += REQUEST_WEIGHT
        call = IncomingCall(subcategory, topic, fields, stream, async_id, weight, cost, entry, now)
        if not self.admit(call):
            return self.refuse(stream, async_id, ResultCode.OVERLOADED)
        deadline = fields.get(keys.DEADLINE_MS)
        if deadline is not None:
            call.deadline = now + min(deadline, LONGEST_DEADLINE_MS) / 1000
            call.slot = self._deadlines.add(call, call.deadline)
        if subcategory == CALL:
            self._run(call)
        else:
            call.after = read_position(fields)
            self.turns.take(call, self._subscribe)
        return True

    def _early_refusal(self, subcategory: int, payload: bytes) -> ResultCode:
        """Refuse a long request, as far as possible without decoding it."""
        topic = peek_text(payload, keys.TOPIC) if subcategory == CALL else None
        if topic is not None and isinstance(code := self._find(CALL, topic), ResultCode) and code:
            return code
        return ResultCode.ACCEPTED if self.has_room(len(payload)) else ResultCode.OVERLOADED

    def _subscribe(self, call: IncomingCall) -> None:
        entry = self._find(SUBSCRIBE, call.topic)
        if isinstance(entry, ResultCode) and entry:
            self.answer(call, entry)
        else:
            call.entry = entry
            self._run(call)

    def admit(self, call: IncomingCall, *, always: bool = False) -> bool:
        """Register a request and charge it; False if that exceeds a limit (section 8). Unread
        responses are charged too: a peer that doesn't read them cannot send more requests.

        Raises:
            RemoteProtocolError: as `require_free`.
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
            self._silent.add(call)
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
        """Check that a request may use this async id.

        Raises:
            RemoteProtocolError: an unanswered request has it; or the peer doesn't read its
                responses, so that too many events wait to be written.
        """
        self._require_read()
        if self._unanswered.get(stream, async_id) is not None:
            raise violation(f"async id {async_id} is used twice on stream {stream}")

    def _require_read(self) -> None:
        waiting = self._connection.outbox.count
        if waiting > UNREAD_EVENTS and (waiting > LAST_ASYNC_ID or not self._account.has_room()):
            reason = f"it does not read its answers: {waiting} events wait"
            raise RemoteProtocolError(CloseCode.OVERLOADED, reason)

    def cancel_received(self, event: EventReceived, now: float) -> bool:
        try:
            request = event_types.CANCEL.read(event.payload)[keys.REQUEST]
        except LbmDecodeError:
            self._connection.count_dropped()
            return False
        call = self._unanswered.get(event.stream, request)
        if call is not None:
            self._abandon(call, ResultCode.CANCELLED)
        return False

    def too_late(self, call: IncomingCall) -> None:
        """End a request whose deadline has passed."""
        self._abandon(call, ResultCode.DEADLINE_EXCEEDED)

    def stream_reset(self, stream: int) -> None:
        """Stop the handlers of a stream on which responses can no longer be sent."""
        silent = [call for call in self._silent if call.stream == stream]
        # The newest first: a queued request ends before its turn comes.
        for call in [*silent, *reversed(self._unanswered.end_stream(stream))]:
            self._abandon(call, ResultCode.CANCELLED)

    def connection_ended(self) -> None:
        """Stop all handlers."""
        self.turns.clear()
        for call in [*self._unanswered.end_all(), *self._silent]:
            call.answered = True
            self._on_final(call, LOST)
            self._cancel_handler(call)
        self._silent.clear()

    def _abandon(self, call: IncomingCall, code: ResultCode) -> None:
        if not call.answered:
            self._on_final(call, code)
            self._forget(call, _encode_final(call, code))
            self._cancel_handler(call)

    def _cancel_handler(self, call: IncomingCall) -> None:
        self._stop(call)
        if not call.begun:  # one that has begun is charged until it returns
            self._release(call)

    # Responses.

    def answer(
        self, call: IncomingCall, code: int, data: Encodable = None, stream: int = 0
    ) -> None:
        """Send the final response; a second one is ignored. The response to an accepted Subscribe
        names `stream`, whose queued events are written after it.

        Raises:
            LbmEncodeError: `data` has no encoding; the request is still unanswered.
        """
        if call.answered:
            self._release(call)  # its handler ran on after the caller had left
            return
        answer = call.made
        if answer is None:
            if not call.async_id:
                answer = NO_ANSWER
            elif call.category == NAMED:
                answer = encode_end(code, data)
            else:
                answer = encode_result(code, data, stream if call.subcategory == SUBSCRIBE else 0)
        self._release(call)  # it makes room for its own response
        self._on_final(call, code)
        self._forget(call, answer, stream)

    def make(self, call: IncomingCall, code: int, data: Encodable = None) -> int:
        """Encode the final response before `answer` sends it; returns its size; raises as that."""
        call.made = call.made or _encode_final(call, code, data)
        return len(call.made[2])

    def refuse(
        self,
        stream: int,
        async_id: int,
        code: ResultCode,
        make: Callable[[int], FinalAnswer] = encode_result,
    ) -> bool:
        """Respond with a bare code, which `make` encodes; without async id the request is
        dropped. Returns False: its cost is given back.

        Raises:
            RemoteProtocolError: as `require_free`.
        """
        self._on_final(None, code)
        if async_id:
            self.answer_at_once(stream, async_id, make(code))
        else:
            self._connection.count_dropped(charged=code != ResultCode.OVERLOADED)
        return False

    def answer_at_once(
        self, stream: int, async_id: int, answer: FinalAnswer, release: int = 0
    ) -> None:
        """Respond to a request without handler; raises as `require_free`."""
        self.require_free(stream, async_id)
        self._send_final(stream, async_id, answer, release)

    def chunk(self, call: IncomingCall, payload: bytes) -> bool:
        """Send one item of a streamed response; False without credit, or if the stream is blocked.

        Raises:
            LocalProtocolError: the caller has left, not open, the stream is gone, or the
                item is too large.
        """
        credit = self._credit(call)
        size = self.send_part(call, SIM, CHUNK, payload) if credit.left > 0 else 0
        if not size:
            return False
        credit.left -= size + EVENT_COST
        return True

    def send_part(self, call: IncomingCall, category: int, subcategory: int, payload: bytes) -> int:
        """Send a part of a response, before the final one; returns its size as sent, 0 if the
        stream is blocked.

        Raises:
            LocalProtocolError: as `chunk`.
        """
        if call.answered or not call.async_id:
            # After the final response another call can have the id.
            call_id = f"async id {call.async_id}, stream {call.stream}"
            raise LocalProtocolError(f"cannot answer the call ({call_id}): no caller waits for it")
        if not self._blocked.is_free(call):
            return 0
        return self._connection.send(call.stream, call.async_id, category, subcategory, payload)

    def window_received(self, report: WindowReceived) -> None:
        """Add credit for the Chunks of a response.

        Raises:
            RemoteProtocolError: `protocol-error`, more than 2^31 - 1.
        """
        call = self._unanswered.get(report.stream, report.request)
        if call is not None:
            self._credit(call).grant(report.credit)
            if call.on_credit is not None:
                call.on_credit()

    def stream_writable(self, stream: int) -> None:
        """The queue of `stream` is empty: continue streamed responses."""
        self._blocked.writable(stream)

    def _credit(self, call: IncomingCall) -> SendCredit:
        if call.credit is None:
            call.credit = SendCredit(call.window or self._connection.limits.stream_window)
        return call.credit

    def _release(self, call: IncomingCall) -> None:
        self._account.release(call.weight)
        call.weight = 0

    def _forget(self, call: IncomingCall, answer: FinalAnswer, release: int = 0) -> None:
        call.answered = True
        call.slot.discard(call)
        if self._blocked.waiting:
            self._blocked.forget(call)
        if call.cost:
            self._connection.consume(call.stream, call.cost)
        if not call.async_id:
            self._silent.discard(call)
        elif self._unanswered.by_id.pop(call.stream << 16 | call.async_id, None) is not None:
            self._send_final(call.stream, call.async_id, answer, release)
        if call.subcategory == SUBSCRIBE or call.subcategory == UNSUBSCRIBE:
            self.turns.end(call)

    def _send_final(
        self, stream: int, async_id: int, answer: FinalAnswer, release: int = 0
    ) -> None:
        send = self._connection.send
        category, subcategory, payload = answer
        make = encode_end if category == NAMED else encode_result
        if len(payload) > SHORT_ANSWER and not self._account.has_room():
            category, subcategory, payload = make(ResultCode.OVERLOADED)
        try:
            try:
                send(stream, async_id, category, subcategory, payload, releases=release)
            except PayloadTooLargeError:
                category, subcategory, payload = make(ResultCode.PAYLOAD_TOO_LARGE)
                send(stream, async_id, category, subcategory, payload, releases=release)
        except LocalProtocolError:  # the connection is closing, or the stream is gone
            if release:
                with suppress(LocalProtocolError):
                    self._connection.streams.release(release)


def _encode_final(call: IncomingCall, code: int, data: Encodable = None) -> FinalAnswer:
    return encode_end(code, data) if call.category == NAMED else encode_result(code, data)
