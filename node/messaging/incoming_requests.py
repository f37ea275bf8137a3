"""The peer's requests, calls and subscriptions, and our responses (section 9).

Every request with an async id gets exactly one final response, whatever its handler does.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

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
from parley._node.messaging.deadlines import LONGEST_DEADLINE_MS, NO_SLOT, Deadlines
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


class IncomingCall:
    """A call or subscription that came, for its handler; `subcategory` says which.

    `deadline` is seconds of the connection's clock, or None. `answered` is set once its
    answer is on its way; from then on the handler's own answer changes nothing. `begun` is
    for whoever runs the handler to set when it runs, `weight` what is charged for it.
    `window` is what the asking side named for what will be sent to it, or None; `after` where
    a Subscribe goes on;
    `credit` what is left of it for Chunks, and `on_credit` is called when there is more.
    `once` is the key of a call that is to be made once.
    `came` is when it came, for calls and named events.
    `made` is its answer once that is encoded before there is room for it. `entry` is what
    was found for it when it came, which is what runs it.
    """

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
        data: Value,
        headers: Mapping[str, Value],
        stream: int,
        async_id: int,
        weight: int,
        cost: int,
        entry: Any = None,
    ) -> None:
        self.entry = entry
        self.came = 0.0
        self.subcategory = subcategory
        self.topic = topic
        self.data: Any = data
        self.headers = headers
        self.stream = stream
        self.async_id = async_id
        self.weight = weight
        self.cost = cost  # what it took of its stream's credit, until it is answered
        self.window: int | None = None
        self.once: bytes | None = None
        self.after: TopicPosition | None = None
        self.credit: SendCredit | None = None
        self.on_credit: Callable[[], None] | None = None
        self.deadline: float | None = None
        self.slot: set[Any] = NO_SLOT
        self.answered = False
        self.begun = False
        self.made: FinalAnswer | None = None
        self.runner: Any = None  # the shell's handle of the running handler

    def final(self, code: int, data: Any = None, stream: int = 0) -> FinalAnswer:
        """Its final answer; `stream` is what an accepted Subscribe is answered with. Raises
        LbmEncodeError for data without an encoding."""
        return encode_result(code, data, stream)


# Told of each request that is over: with its code, and without it if it never was one to run.
FinalCallback = Callable[[IncomingCall | None, int], None]


def ignore_final(call: IncomingCall | None, code: int) -> None:
    """Nobody counts."""


class BlockedAnswers:
    """The streams of one connection on which streamed answers wait for room, in `waiting`."""

    __slots__ = ("_connection", "waiting")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.waiting: dict[int, set[IncomingCall]] = {}

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
        """Nothing waits on `stream` any more, or it is over."""
        for call in self.waiting.pop(stream, ()):
            if call.on_credit is not None:
                call.on_credit()

    def forget(self, call: IncomingCall) -> None:
        """The call was answered."""
        calls = self.waiting.get(call.stream)
        if calls is not None:
            calls.discard(call)
            if not calls:
                del self.waiting[call.stream]

    def __len__(self) -> int:
        """How many streams are waited for."""
        return len(self.waiting)


# Is called with a request whose turn has come.
Begin = Callable[[IncomingCall], None]


class PerTopicQueue:
    """The unanswered requests about each topic; the first of them is the one being decided.

    `end` is to be called with each request that was taken, once it is answered, also from
    within what begins it.
    """

    __slots__ = ("_beginning", "requests")

    def __init__(self) -> None:
        self._beginning: set[str] = set()
        self.requests: dict[str, dict[IncomingCall, Begin]] = {}

    def is_free(self, topic: str) -> bool:
        """Whether a request about this topic would begin at once."""
        return topic not in self.requests

    def take(self, request: IncomingCall, begin: Begin) -> None:
        """Begin a request, or let it wait for its turn."""
        requests = self.requests.get(request.topic)
        if requests is not None:
            requests[request] = begin
            return
        self.requests[request.topic] = {request: begin}
        self._advance(request.topic)

    def end(self, request: IncomingCall) -> None:
        """A request was answered, in its turn or while it waited."""
        requests = self.requests.get(request.topic)
        if requests is None:
            return
        had_its_turn = request is next(iter(requests))
        del requests[request]
        if had_its_turn and request.topic not in self._beginning:
            self._advance(request.topic)

    def clear(self) -> None:
        """The connection is over: nothing that waits will begin."""
        self.requests.clear()

    def _advance(self, topic: str) -> None:
        # A loop, since a peer can have a thousand wait that are answered as soon as they begin.
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


# Bytes of a payload that are read before it is asked whether the request may run.
SHORT_PAYLOAD: Final = 1_024
# Events that may wait to be written when there is no room and yet more is asked.
UNREAD_EVENTS: Final = 4_096
# An answer that is longer is not kept where there is no room for it.
SHORT_ANSWER: Final = 512


class IncomingCalls:
    """The other side's requests on one connection that we have not answered.

    `find` gives what a request of this subcategory (Call, Subscribe) for a topic runs, or the
    code that refuses it; `run` starts that for a request, whose `entry` it is, and `stop` ends it
    because nobody waits for it any more; once the request is `begun`, `answer` is to say that
    its handler is over: until then it is charged to the connection's account. `on_final` is told
    how each ended. `turns` has what is asked about topics, for `Topics` too.
    """

    __slots__ = (
        "_account",
        "_chunk_room",
        "_connection",
        "_find",
        "_on_final",
        "_run",
        "_silent",
        "_stop",
        "_unanswered",
        "deadlines",
        "turns",
    )

    def __init__(
        self,
        connection: Connection,
        find: Callable[[int, str], object],
        run: Callable[[IncomingCall], None],
        stop: Callable[[IncomingCall], None],
        *,
        on_final: FinalCallback = ignore_final,
        count_limit: int = UNANSWERED_REQUESTS,
    ) -> None:
        self._connection = connection
        self._on_final = on_final
        self._account = connection.account
        self._find = find
        self._run = run
        self._stop = stop
        self._unanswered: IncomingRequests[IncomingCall] = IncomingRequests(count_limit)
        self.deadlines: Deadlines[IncomingCall] = Deadlines()
        self._silent: set[IncomingCall] = set()  # those that want no answer
        self._chunk_room = BlockedAnswers(connection)
        self.turns = PerTopicQueue()

    def __len__(self) -> int:
        return len(self._unanswered) + len(self._silent)

    # Answers.

    def answer(
        self, call: IncomingCall, code: int, data: Encodable = None, stream: int = 0
    ) -> None:
        """Answer a request; a second answer changes nothing. With `stream` the answer
        names it if it accepts a Subscribe, and what is held there goes after it.

        Raises:
            LbmEncodeError: `data` has no encoding; the request is still unanswered.
        """
        if call.answered:
            self._release(call)  # its handler went on when nobody waited for it any more
            return
        named = stream if call.subcategory == SUBSCRIBE else 0
        answer = call.made or (call.final(code, data, named) if call.async_id else NO_ANSWER)
        self._account.release(call.weight)  # it makes room for its own answer
        call.weight = 0
        self._on_final(call, code)
        self._forget(call, answer, stream)

    def make(self, call: IncomingCall, code: int, data: Encodable = None) -> int:
        """Encode what a request is to be answered, for `answer` to send when there is room;
        returns its size. Raises as that does."""
        call.made = call.made or call.final(code, data)
        return len(call.made[2])

    def chunk(self, call: IncomingCall, payload: bytes) -> bool:
        """Send one item of a streamed answer; False if there is no credit or room for it now.

        Raises:
            LocalProtocolError: nobody waits for it, not open, the stream is gone, or the
                item is too large.
        """
        credit = self._credit(call)
        size = self.send_part(call, SIM, CHUNK, payload) if credit.left > 0 else 0
        if not size:
            return False
        credit.left -= size + EVENT_COST
        return True

    def send_part(self, call: IncomingCall, category: int, subcategory: int, payload: bytes) -> int:
        """Send a part of an answer, the final part of which is to follow; returns its size as
        it is sent, 0 if its stream has no room for it now.

        Raises:
            LocalProtocolError: as `chunk`.
        """
        if call.answered or not call.async_id:
            # After the final answer the id may be another call's.
            call_id = f"async id {call.async_id}, stream {call.stream}"
            raise LocalProtocolError(f"cannot answer the call ({call_id}): no caller waits for it")
        if not self._chunk_room.is_free(call):
            return 0
        return self._connection.send(call.stream, call.async_id, category, subcategory, payload)

    def refuse(
        self,
        stream: int,
        async_id: int,
        code: ResultCode,
        make: Callable[[int], FinalAnswer] = encode_result,
    ) -> None:
        """Answer a request with nothing but `code`, in the answer that `make` makes of it;
        without async id it is dropped.

        Raises:
            RemoteProtocolError: as `require_free`.
        """
        self._on_final(None, code)
        if async_id:
            self.answer_at_once(stream, async_id, make(code))
        else:
            self._connection.count_dropped(charged=code != ResultCode.OVERLOADED)

    def answer_at_once(
        self, stream: int, async_id: int, answer: FinalAnswer, release: int = 0
    ) -> None:
        """Answer a request that needs no handler and has an async id; raises as
        `require_free`."""
        self.require_free(stream, async_id)
        self._send_final(stream, async_id, answer, release)

    # From the connection. Each returns whether the cost of the event is kept for now.

    def request_received(self, event: EventReceived, now: float) -> bool:
        """Take a Call or Subscribe: start its handler.

        Raises:
            RemoteProtocolError: as `require_free`.
        """
        stream, async_id, _, subcategory, payload, cost = event
        if len(payload) > SHORT_PAYLOAD:
            code = self._refusal(subcategory, payload)
            if code:
                self.refuse(stream, async_id, code)
                return False
        try:
            if subcategory == CALL:
                read = decode_call(payload) or event_types.CALL.read_weighed(payload)
            else:
                read = event_types.SUBSCRIBE.read_weighed(payload)
            cells, weight = read
        except LbmDecodeError:
            self.refuse(stream, async_id, ResultCode.MALFORMED)
            return False
        get, topic = cells.get, cells[keys.TOPIC]
        # What a Subscribe runs is asked when its turn has come.
        entry = self._find(CALL, topic) if subcategory == CALL else None
        if isinstance(entry, ResultCode) and entry:
            self.refuse(stream, async_id, entry)
            return False
        weight += REQUEST_WEIGHT
        if not self.has_room(weight):
            self.refuse(stream, async_id, ResultCode.OVERLOADED)
            return False
        if not async_id and subcategory == SUBSCRIBE:
            self._connection.count_dropped()  # its answer would have named the stream
            return False
        data, headers = get(keys.DATA), get(keys.HEADERS) or {}
        call = IncomingCall(
            subcategory, topic, data, headers, stream, async_id, weight, cost, entry
        )
        call.window = get(keys.WINDOW)
        call.once = get(keys.ONCE_KEY)
        call.came = now
        self.admit(call)
        deadline = get(keys.DEADLINE_MS)
        if deadline is not None:
            call.deadline = now + min(deadline, LONGEST_DEADLINE_MS) / 1000
            call.slot = self.deadlines.add(call, call.deadline)
        if subcategory == CALL:
            self._run(call)
        else:
            call.after = read_position(cells)
            self.turns.take(call, self._subscribe)
        return True

    def _refusal(self, subcategory: int, payload: bytes) -> ResultCode:
        """The code that refuses a request, as far as that is known before all of it is read."""
        topic = peek_text(payload, keys.TOPIC) if subcategory == CALL else None
        if topic is not None and isinstance(code := self._find(CALL, topic), ResultCode) and code:
            return code
        return ResultCode.ACCEPTED if self.has_room(len(payload)) else ResultCode.OVERLOADED

    def admit(self, call: IncomingCall) -> None:
        """Take a request in, for which there is room; it is to be answered.

        Raises:
            RemoteProtocolError: as `require_free`.
        """
        if call.async_id:
            if self._connection.outbox.count > UNREAD_EVENTS:
                self._require_read()
            self._unanswered.add(call.stream, call.async_id, call)
        else:
            self._silent.add(call)
        self._account.charge(call.weight)

    def cancel_received(self, event: EventReceived, now: float) -> bool:
        """Take a Cancel: the handler of the request is stopped."""
        try:
            request = event_types.CANCEL.read(event.payload)[keys.REQUEST]
        except LbmDecodeError:
            self._connection.count_dropped()
            return False
        call = self._unanswered.get(event.stream, request)
        if call is not None:
            self._abandon(call, ResultCode.CANCELLED)
        return False

    def window_received(self, report: WindowReceived) -> None:
        """Take credit for the Chunks of an answer.

        Raises:
            RemoteProtocolError: `protocol-error`, more than 2^31 - 1.
        """
        call = self._unanswered.get(report.stream, report.request)
        if call is not None:
            self._credit(call).grant(report.credit)
            if call.on_credit is not None:
                call.on_credit()

    def stream_writable(self, stream: int) -> None:
        """Nothing waits to be written on `stream` any more: streamed answers go on."""
        self._chunk_room.writable(stream)

    def require_free(self, stream: int, async_id: int) -> None:
        """Raise RemoteProtocolError if a request under this id is unanswered, or if more
        events wait to be written than a stream has ids, fewer where there is no room: nobody
        reads the answers."""
        self._require_read()
        if self._unanswered.get(stream, async_id) is not None:
            raise violation(f"async id {async_id} is used twice on stream {stream}")

    def handle_deadline(self, now: float) -> None:
        """End the requests whose deadline has passed."""
        for call in self.deadlines.due(now):
            self._abandon(call, ResultCode.DEADLINE_EXCEEDED)

    def stream_reset(self, stream: int) -> None:
        """Nobody can be answered on `stream` any more: its handlers are stopped."""
        silent = [call for call in self._silent if call.stream == stream]
        # The newest first: what waits for its turn ends before that comes.
        for call in [*silent, *reversed(self._unanswered.end_stream(stream))]:
            self._abandon(call, ResultCode.CANCELLED)

    def connection_ended(self) -> None:
        """Whoever asked cannot be answered: handlers are stopped."""
        self.turns.clear()
        for call in [*self._unanswered.end_all(), *self._silent]:
            call.answered = True
            self._on_final(call, LOST)
            self._stopped(call)
        self._silent.clear()

    def has_room(self, weight: int) -> bool:
        """Whether a request of so many bytes of memory is within the bounds of section 8.

        Answers that wait count as well: who does not read them may not ask for more.
        """
        requests = self._unanswered
        most = requests.count_limit
        if len(self._silent) >= most or len(requests.by_id) >= most:
            return False
        return self._account.has_room(weight)

    # Inside.

    def _subscribe(self, call: IncomingCall) -> None:
        entry = self._find(SUBSCRIBE, call.topic)
        if isinstance(entry, ResultCode) and entry:
            self.answer(call, entry)
        else:
            call.entry = entry
            self._run(call)

    def _require_read(self) -> None:
        waiting = self._connection.outbox.count
        if waiting > UNREAD_EVENTS and (waiting > LAST_ASYNC_ID or not self._account.has_room()):
            reason = f"it does not read its answers: {waiting} events wait"
            raise RemoteProtocolError(CloseCode.OVERLOADED, reason)

    def _credit(self, call: IncomingCall) -> SendCredit:
        if call.credit is None:
            call.credit = SendCredit(call.window or self._connection.limits.stream_window)
        return call.credit

    def _abandon(self, call: IncomingCall, code: ResultCode) -> None:
        if not call.answered:
            self._on_final(call, code)
            self._forget(call, call.final(code, None, 0))
            self._stopped(call)

    def _stopped(self, call: IncomingCall) -> None:
        """Nobody waits for it: its handler is stopped, but may take its time."""
        self._stop(call)
        if not call.begun:
            self._release(call)

    def _release(self, call: IncomingCall) -> None:
        self._account.release(call.weight)
        call.weight = 0

    def _forget(self, call: IncomingCall, answer: FinalAnswer, release: int = 0) -> None:
        call.answered = True
        call.slot.discard(call)
        if self._chunk_room.waiting:
            self._chunk_room.forget(call)
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
            return
