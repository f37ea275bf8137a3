"""Calls, both ways: ask and be answered, be asked and answer (section 9).

One rule: every call with an async id gets exactly one final answer, whatever happens to
its handler, and a caller that gives up keeps the id until that answer came. Handlers
are run by the shell: `Calls` tells it when to start one and when to stop it.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from lbm import keys
from lbm.cells import read_text, read_text_map, read_uint
from lbm.codec import Encodable, Value, decode, encode
from lbm.errors import LbmDecodeError
from node.messaging.backlog import AnswerBacklog
from node.messaging.deadlines import Deadlines
from node.messaging.pending import LOST, IncomingCall, OutgoingCall
from node.protocol.codes import (
    CALL,
    CANCEL,
    LAST_CODE,
    MAIN_STREAM,
    RESULT,
    SIM,
    CloseCode,
    ResultCode,
)
from node.protocol.connection import Connection
from node.protocol.errors import (
    LocalProtocolError,
    PayloadTooLargeError,
    RemoteProtocolError,
    violation,
)
from node.protocol.limits import LARGEST_CREDIT, UNANSWERED_REQUESTS, WAITING_BYTES
from node.protocol.reports import EventReceived
from node.protocol.requests import LAST_ASYNC_ID, IncomingRequests, OutgoingRequests

# 31 years, which the numbers of every clock and timer can hold.
LONGEST_DEADLINE_MS: Final = 10**12
# What an item of a decoded payload takes at least in memory, bytes.
ITEM_SIZE: Final = 64
INFINITY: Final = float("inf")


class Calls:
    """All calls of one connection.

    `find` tells whether a topic has a handler, `run` starts the handler of a call and
    `stop` ends it because nobody waits for it any more.
    """

    __slots__ = (
        "_backlog",
        "_connection",
        "_find",
        "_incoming",
        "_incoming_deadlines",
        "_outgoing",
        "_outgoing_deadlines",
        "_run",
        "_silent",
        "_silent_bytes",
        "_stop",
        "dropped",
    )

    def __init__(
        self,
        connection: Connection,
        find: Callable[[str], bool],
        run: Callable[[IncomingCall], None],
        stop: Callable[[IncomingCall], None],
        *,
        count_limit: int = UNANSWERED_REQUESTS,
        size_limit: int = WAITING_BYTES,
    ) -> None:
        self._connection = connection
        self._find = find
        self._run = run
        self._stop = stop
        self._outgoing: OutgoingRequests[OutgoingCall] = OutgoingRequests()
        self._outgoing_deadlines: Deadlines[OutgoingCall] = Deadlines()
        self._incoming: IncomingRequests[IncomingCall] = IncomingRequests(count_limit, size_limit)
        self._incoming_deadlines: Deadlines[IncomingCall] = Deadlines()
        self._silent: set[IncomingCall] = set()  # those that want no answer
        self._silent_bytes = 0
        self._backlog = AnswerBacklog(connection.waiting_events)
        self.dropped = 0  # requests and answers that nobody took

    # Asking.

    def call(
        self,
        topic: str,
        data: Encodable,
        now: float,
        timeout: float | None,
        on_done: Callable[[], None],
        headers: Mapping[str, Encodable] | None = None,
    ) -> OutgoingCall:
        """Send a call on stream 1; `timeout` is seconds from `now`, None or infinity for
        no deadline.

        Raises:
            LocalProtocolError: not open, too large, or 65,535 calls wait already.
            LbmEncodeError: `data` or `headers` have no encoding.
        """
        cells: dict[int, Encodable] = {keys.TOPIC: topic}
        if data is not None:
            cells[keys.DATA] = data
        if timeout == INFINITY:
            timeout = None
        if timeout is not None:
            timeout = min(max(0.0, timeout), LONGEST_DEADLINE_MS / 1000)
            cells[keys.DEADLINE_MS] = max(1, int(timeout * 1000))
        if headers:
            cells[keys.HEADERS] = headers
        payload = encode(cells)
        call = OutgoingCall(on_done)
        call.async_id = async_id = self._outgoing.add(MAIN_STREAM, call)
        try:
            self._connection.send(MAIN_STREAM, async_id, SIM, CALL, payload)
        except LocalProtocolError:
            self._outgoing.pop(MAIN_STREAM, async_id)
            raise
        if timeout is not None:
            call.slot = self._outgoing_deadlines.add(call, now + timeout)
        return call

    def give_up(self, call: OutgoingCall) -> None:
        """Nobody waits for `call` any more: send Cancel; its id stays busy for now."""
        if call.done:
            return
        call.done = True
        self._outgoing_deadlines.discard(call, call.slot)
        self._send_cancel(call)

    # Being asked.

    def answer(self, call: IncomingCall, code: int, data: Encodable = None) -> None:
        """Answer a call; a second answer changes nothing.

        Raises:
            LbmEncodeError: `data` has no encoding; the call is still unanswered.
        """
        if call.answered:
            return
        self._forget(call, encode_result(code, data))

    def waiting(self) -> list[IncomingCall]:
        """The calls whose handlers run."""
        return [*self._incoming.values(), *self._silent]

    # From the connection.

    def receive(self, event: EventReceived, now: float) -> bool:
        """Take an event of category 3; returns whether it was one of calls.

        What it cost is given back, that of a call with its answer.

        Raises:
            RemoteProtocolError: `protocol-error`, an async id is used twice;
                `overloaded`, more answers wait than there are ids.
        """
        stream, async_id, _, subcategory, payload, cost = event
        if subcategory == CALL:
            if self._called(event, now):
                return True
        elif subcategory == RESULT:
            self._result(stream, async_id, payload)
        elif subcategory == CANCEL:
            self._cancelled(stream, payload)
        else:
            return False
        self._connection.consume(stream, cost)
        return True

    def require_free(self, stream: int, async_id: int) -> None:
        """Raise RemoteProtocolError if a request under this id is unanswered, or if more
        events wait to be written than a stream has ids: nobody reads the answers."""
        if self._connection.queued_events > LAST_ASYNC_ID:
            raise RemoteProtocolError(CloseCode.OVERLOADED, "answers that nobody reads")
        if self._incoming.get(stream, async_id) is not None:
            raise violation(f"async id {async_id} is used twice on stream {stream}")

    def next_deadline(self) -> float:
        """When `handle_deadline` has something to do."""
        return min(self._outgoing_deadlines.next(), self._incoming_deadlines.next())

    def handle_deadline(self, now: float) -> None:
        """End the calls whose deadline has passed, on either side."""
        for outgoing in self._outgoing_deadlines.due(now):
            if not outgoing.done:
                self._send_cancel(outgoing)
                outgoing.finish(ResultCode.DEADLINE_EXCEEDED, None)
        for incoming in self._incoming_deadlines.due(now):
            self._abandon(incoming, ResultCode.DEADLINE_EXCEEDED)

    def stream_reset(self, stream: int) -> None:
        """Nobody can be answered on `stream` any more: its handlers are stopped."""
        silent = [call for call in self._silent if call.stream == stream]
        for call in [*self._incoming.end_stream(stream), *silent]:
            self._abandon(call, ResultCode.CANCELLED)

    def connection_ended(self, code: int, text: str) -> None:
        """Whoever waits, waits in vain: callers get `LOST`, handlers are stopped."""
        for outgoing in self._outgoing.end_all():
            outgoing.close_code = code
            outgoing.close_text = text
            outgoing.finish(LOST, None)
        for incoming in [*self._incoming.end_all(), *self._silent]:
            incoming.answered = True
            self._stop(incoming)
        self._silent.clear()
        self._silent_bytes = 0

    # Answers.

    def _result(self, stream: int, async_id: int, payload: bytes) -> None:
        call = self._outgoing.pop(stream, async_id)
        if call is None:
            self.dropped += 1
            return
        self._outgoing_deadlines.discard(call, call.slot)
        try:
            cells = decode(payload)
            code = read_uint(cells, keys.CODE, maximum=LAST_CODE)
        except LbmDecodeError:
            call.finish(ResultCode.MALFORMED, None)
            return
        call.finish(code, cells.get(keys.DATA))

    def _send_cancel(self, call: OutgoingCall) -> None:
        try:
            payload = encode({keys.REQUEST: call.async_id})
            self._connection.send(MAIN_STREAM, 0, SIM, CANCEL, payload)
        except LocalProtocolError:
            return  # the connection is closing: nobody is left to tell

    # Requests.

    def _called(self, event: EventReceived, now: float) -> bool:
        """Start the handler; returns whether there is one and may run."""
        stream, async_id, _, _, payload, cost = event
        try:
            cells = decode(payload)
            topic = read_text(cells, keys.TOPIC)
            headers = read_text_map(cells, keys.HEADERS, default={})
            deadline = read_uint(cells, keys.DEADLINE_MS, default=None)
            # For Chunks, which no handler sends; a wrong one is malformed all the same.
            read_uint(cells, keys.WINDOW, default=1, minimum=1, maximum=LARGEST_CREDIT)
        except LbmDecodeError:
            self.refuse(stream, async_id, ResultCode.MALFORMED)
            return False
        if not self._find(topic):
            self.refuse(stream, async_id, ResultCode.TOPIC_NOT_FOUND)
            return False
        data, size = cells.get(keys.DATA), len(payload)
        if headers or type(data) is list or type(data) is dict:
            size = held_size(cells, size)
        if not self._has_room(size):
            self.refuse(stream, async_id, ResultCode.OVERLOADED)
            return False
        call = IncomingCall(topic, data, headers, stream, async_id, size, cost)
        if async_id:
            self._incoming.add(stream, async_id, call, size)
        else:
            self._silent.add(call)
            self._silent_bytes += size
        if deadline is not None:
            call.deadline = now + min(deadline, LONGEST_DEADLINE_MS) / 1000
            call.slot = self._incoming_deadlines.add(call, call.deadline)
        self._run(call)
        return True

    def _has_room(self, size: int) -> bool:
        """Whether a request of `size` bytes is within the bounds of section 8.

        Answers that wait count as well: who does not read them may not ask for more.
        """
        incoming, backlog = self._incoming, self._backlog
        if len(self._silent) >= incoming.count_limit:
            return False
        size += self._silent_bytes
        if not incoming.has_room(size + backlog.size):
            backlog.trim()
        return incoming.has_room(size + backlog.size)

    def refuse(self, stream: int, async_id: int, code: ResultCode) -> None:
        """Answer a request with nothing but `code`; without async id it is dropped.

        Raises:
            RemoteProtocolError: as `receive`.
        """
        if not async_id:
            self.dropped += 1
            return
        self.require_free(stream, async_id)
        self._send_result(stream, async_id, encode_result(code))

    def _cancelled(self, stream: int, payload: bytes) -> None:
        try:
            request = read_uint(decode(payload), keys.REQUEST)
        except LbmDecodeError:
            self.dropped += 1
            return
        call = self._incoming.get(stream, request)
        if call is not None:
            self._abandon(call, ResultCode.CANCELLED)

    def _abandon(self, call: IncomingCall, code: ResultCode) -> None:
        if not call.answered:
            self._forget(call, encode_result(code))
            self._stop(call)

    def _forget(self, call: IncomingCall, result: bytes) -> None:
        call.answered = True
        self._incoming_deadlines.discard(call, call.slot)
        self._connection.consume(call.stream, call.cost)
        if not call.async_id:
            self._silent.discard(call)
            self._silent_bytes -= call.size
        elif self._incoming.pop(call.stream, call.async_id) is not None:
            self._send_result(call.stream, call.async_id, result)

    def _send_result(self, stream: int, async_id: int, result: bytes) -> None:
        try:
            self._connection.send(stream, async_id, SIM, RESULT, result)
        except PayloadTooLargeError:
            result = encode_result(ResultCode.PAYLOAD_TOO_LARGE)
            self._connection.send(stream, async_id, SIM, RESULT, result)
        except LocalProtocolError:
            return  # the connection is closing, or the stream is gone
        self._backlog.add(stream, len(result))


def held_size(cells: Mapping[int, Value], size: int) -> int:
    """What a decoded payload of `size` bytes holds, about: small items weigh more decoded."""
    items = 0
    containers: list[Collection[Value]] = [cells.values()]
    while containers:
        inside = containers.pop()
        items += len(inside)
        containers += [item for item in inside if type(item) is list]
        containers += [item.values() for item in inside if type(item) is dict]
    return max(size, items * ITEM_SIZE)


def encode_result(code: int, data: Encodable = None) -> bytes:
    """The payload of a Result; raises LbmEncodeError."""
    if data is None:
        return encode({keys.CODE: code})
    return encode({keys.CODE: code, keys.DATA: data})
