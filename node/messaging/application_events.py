"""Application events on streams: their types, and requests and responses among them (section 2)."""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from parley._lbm import keys
from parley._lbm.codec import Encodable, encode
from parley._lbm.errors import LbmDecodeError
from parley._node.errors import ConfigError
from parley._node.messaging.deadline_queue import NO_SLOT, DeadlineQueue, clamp_timeout
from parley._node.protocol import event_types
from parley._node.protocol.codes import (
    BUS,
    BUS_LABEL,
    CALL,
    CANCEL,
    EMIT,
    FEDERATION,
    FEDERATION_LABEL,
    FIRST_APPLICATION_CATEGORY,
    NAMED,
    NOTIFY,
    SIM,
    SUBSCRIBE,
    TUNNEL,
    TUNNEL_LABEL,
    UNSUBSCRIBE,
)
from parley._node.protocol.connection import Connection
from parley._node.protocol.errors import (
    LocalError,
    LocalProtocolError,
    PayloadTooLargeError,
    violation,
)
from parley._node.protocol.event import NO_PAYLOAD, Event
from parley._node.protocol.limits import UNANSWERED_REQUESTS
from parley._node.protocol.memory_budget import EVENT_WEIGHT
from parley._node.protocol.request_ids import IncomingRequests, OutgoingRequests

LAST_NUMBER: Final = 255


class Carries(NamedTuple):
    """The events that a stream accepts.

    Attributes: categories: the accepted event categories. events: whether events other than answers
    are accepted. data: whether Data events are accepted. asks: whether an event with a request ID
    is a request. calls: whether calls, topics and named events are also accepted.
    """

    categories: range
    events: bool = True
    data: bool = True
    asks: bool = True
    calls: bool = True

    def encode(
        self, category: int, subcategory: int, data: Encodable, payload: bytes | None, largest: int
    ) -> tuple[bytes, bool]:
        """Return the payload of an event on such a stream, and whether it is LBM.

        A `payload` given as bytes is LBM unless the category is an application's.

        Raises:
            ValueError: the stream does not accept this type; other errors are those of
                `encode_payload`.
        """
        check_type(category, subcategory, self)
        body, lbm = encode_payload(data, payload, largest)
        return body, lbm or category < FIRST_APPLICATION_CATEGORY


APPLICATION: Final = Carries(range(FIRST_APPLICATION_CATEGORY, LAST_NUMBER + 1))
# The opening side of a `bus` stream, which receives no requests.
BUS_ASKING: Final = Carries(range(BUS, BUS + 1), events=False, data=False)
# Streams with reserved labels, first for the opening side, then for the serving side.
TUNNEL_EVENTS: Final = Carries(range(TUNNEL, TUNNEL + 1), calls=False)
FEDERATION_EVENTS: Final = Carries(
    range(FEDERATION, FEDERATION + 1), data=False, asks=False, calls=False
)
ANSWERING: Final = {
    BUS_LABEL: Carries(range(BUS, BUS + 1), data=False),
    TUNNEL_LABEL: TUNNEL_EVENTS,
    FEDERATION_LABEL: FEDERATION_EVENTS,
}


def check_type(category: int, subcategory: int, carries: Carries = APPLICATION) -> None:
    """Raise ValueError unless the stream accepts the category and the subcategory is 1..255.

    Application categories are 64..255.
    """
    if category not in carries.categories or not 1 <= subcategory <= LAST_NUMBER:
        first, last = carries.categories[0], carries.categories[-1]
        raise ValueError(
            f"invalid event type {category}/{subcategory}: expected a category from {first} to "
            f"{last} and a subcategory from 1 to {LAST_NUMBER}"
        )


def answering_types(types: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Check the types of answering events, given as pairs of category and subcategory.

    Raises:
        ValueError: an item is not the type of an application event.
    """
    try:
        answers = frozenset((category, subcategory) for category, subcategory in types)
    except (TypeError, ValueError):
        raise ValueError(
            f"invalid answers {types!r}: expected pairs of category and subcategory"
        ) from None
    for category, subcategory in answers:
        check_type(category, subcategory)
    return answers


def parse_types(given: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Check an application's event types, given as pairs of category and subcategory.

    Raises:
        ConfigError: a category is not 64..255, or a subcategory not 1..255.
    """
    try:
        return answering_types(given)
    except ValueError as error:
        raise ConfigError(str(error)) from error


def encode_payload(
    data: Encodable, payload: bytes | bytearray | memoryview | None, largest: int
) -> tuple[bytes, bool]:
    """Return the payload of an event, empty if there is none, and whether it is LBM.

    `data` is encoded in cell 22; `payload` is sent unchanged. `largest` is the agreed
    `max_payload`.

    Raises:
        ValueError: both are given.
        LbmEncodeError: `data` cannot be encoded.
        PayloadTooLargeError: the payload is longer than `largest`.
        LocalProtocolError: `payload` is the single byte 0x00, which means "no payload".
    """
    if payload is not None and data is not None:
        raise ValueError(
            f"cannot send data (a {type(data).__name__}) and payload ({len(payload):,} bytes): "
            "give one of them"
        )
    if payload is not None:
        body = bytes(memoryview(payload))
        if body == NO_PAYLOAD:
            raise LocalProtocolError(
                "cannot send the payload 0x00: it means that the event has no payload"
            )
    else:
        body = b"" if data is None else encode({keys.DATA: data})
    if len(body) > largest:
        raise PayloadTooLargeError(
            f"cannot send a payload of {len(body)} bytes: {largest} were agreed"
        )
    return body, payload is None


# Requests of the base protocol, whose IDs are in the same table.
_BASE_REQUESTS: Final = frozenset(
    {(SIM, CALL), (SIM, SUBSCRIBE), (SIM, UNSUBSCRIBE), (SIM, NOTIFY), (NAMED, EMIT)}
)


class OutgoingRequest:
    """An outgoing request.

    `on_done` is called once: when `answer` is set, when the deadline passes (`late`), or when the
    stream ends so that no answer can arrive. `unwanted` receives an answer that arrives after the
    request was cancelled.
    """

    __slots__ = ("answer", "async_id", "done", "late", "on_done", "slot", "stream", "unwanted")

    def __init__(self, stream: int, on_done: Callable[[], None]) -> None:
        self.stream = stream
        self.on_done = on_done
        self.async_id = 0
        self.slot: set[Any] = NO_SLOT
        self.done = False
        self.late = False
        self.answer: Event | None = None
        self.unwanted: Callable[[bytes], None] | None = None

    def finish(self) -> None:
        """Call `on_done` unless the request has already finished."""
        if not self.done:
            self.done = True
            self.on_done()


class IncomingRequest:
    """An incoming request. Its payload is charged as `weight` until it is over.

    `over` is set, and `on_over` called, when it is answered or when its answer is no longer wanted
    or cannot be sent (`cancelled`).
    """

    __slots__ = (
        "answered",
        "async_id",
        "cancelled",
        "on_over",
        "over",
        "stream",
        "weight",
    )

    def __init__(self, stream: int, async_id: int, weight: int) -> None:
        self.weight = weight
        self.stream = stream
        self.async_id = async_id
        self.answered = False
        self.cancelled = False
        self.over = False
        self.on_over: Callable[[], None] | None = None

    def end(self, *, cancelled: bool) -> None:
        """End the request, unless it has already ended."""
        if not self.over:
            self.over = True
            self.cancelled = cancelled
            if self.on_over is not None:
                self.on_over()


class StreamRequests:
    """The requests by application events on one connection, in both directions.

    `require_free` raises if another kind of request uses the peer's request ID.
    """

    __slots__ = ("_connection", "_deadlines", "_incoming", "_outgoing", "_require_free")

    def __init__(
        self,
        connection: Connection,
        deadlines: DeadlineQueue[Any],
        require_free: Callable[[int, int], None],
        *,
        count_limit: int = UNANSWERED_REQUESTS,
    ) -> None:
        self._connection = connection
        self._require_free = require_free
        self._outgoing: OutgoingRequests[OutgoingRequest] = OutgoingRequests()
        self._deadlines = deadlines
        self._incoming: IncomingRequests[IncomingRequest] = IncomingRequests(count_limit)

    def __repr__(self) -> str:
        return f"<StreamRequests: {len(self._outgoing)} outgoing, {len(self._incoming)} incoming>"

    def __len__(self) -> int:
        return len(self._outgoing) + len(self._incoming)

    # Outgoing requests.

    def ask(
        self,
        stream: int,
        category: int,
        subcategory: int,
        payload: bytes,
        lbm: bool,
        now: float,
        timeout: float | None,
        on_done: Callable[[], None],
    ) -> OutgoingRequest:
        """Send a request; `timeout` is in seconds from `now`, None for no deadline.

        Raises:
            LocalError: the stream is not open for sending, or 65,535 requests are waiting on it.
        """
        request = OutgoingRequest(stream, on_done)
        request.async_id = async_id = self._outgoing.add(stream, request)
        try:
            self._connection.send(stream, async_id, category, subcategory, payload, lbm=lbm)
        except LocalError:
            self._outgoing.pop(stream, async_id)
            raise
        timeout = clamp_timeout(timeout)
        if timeout is not None:
            request.slot = self._deadlines.add(request, now + timeout)
        return request

    def cancel(
        self, request: OutgoingRequest, unwanted: Callable[[bytes], None] | None = None
    ) -> None:
        """Stop waiting for a request and send Cancel; its ID stays in use until it is answered.

        `unwanted` receives the payload of its answer, whether it has arrived already or arrives
        later.
        """
        if not request.done:
            request.done = True
            request.unwanted = unwanted
            request.slot.discard(request)
            self._send_cancel(request)
        elif unwanted is not None and request.answer is not None:
            unwanted(request.answer.payload)

    def answer_received(self, event: Event) -> bool:
        """Process an event of an answering type; return whether its request was found."""
        request = self._outgoing.pop(event.stream, event.async_id)
        if request is None:
            return False
        request.slot.discard(request)
        if not request.done:
            request.answer = event
            request.finish()
        elif request.unwanted is not None:
            request.unwanted(event.payload)
        return True

    # Incoming requests.

    def request_received(self, stream: int, async_id: int, size: int) -> IncomingRequest | None:
        """Register a request with a payload of `size` bytes.

        Returns None if too many requests are unanswered or the memory budget is exhausted.

        Raises:
            RemoteProtocolError: `protocol-error`, an unanswered request has the same ID.
        """
        self._require_free(stream, async_id)
        incoming, account = self._incoming, self._connection.account
        weight = size + EVENT_WEIGHT
        if incoming.get(stream, async_id) is None and (
            len(incoming.by_id) >= incoming.count_limit or not account.try_charge(weight)
        ):
            return None
        request = IncomingRequest(stream, async_id, weight)
        incoming.add(stream, async_id, request)  # Raises if the ID is already in use.
        return request

    def answer_sent(self, request: IncomingRequest) -> None:
        """Remove a request whose answer is queued; its ID is free when the answer arrives."""
        if self._incoming.pop(request.stream, request.async_id) is not None:
            self._connection.account.release(request.weight)
        request.end(cancelled=False)

    def claims(self, event: Event) -> bool:
        """Handle a Cancel for one of these requests; return whether the event was one.

        Raises:
            RemoteProtocolError: `protocol-error`, the event is a request with an ID that is in use.
        """
        stream, async_id, category, subcategory = event.head
        if (category, subcategory) == (SIM, CANCEL):
            return self._cancelled(stream, event.payload)
        if self._incoming.get(stream, async_id) and (category, subcategory) in _BASE_REQUESTS:
            raise violation(f"async id {async_id} is used twice on stream {stream}")
        return False

    # Ends and deadlines.

    def local_ended(self, stream: int) -> None:
        """Cancel the incoming requests of a stream, because no answers can be sent on it."""
        self._cut_off(self._incoming.end_stream(stream))

    def remote_ended(self, stream: int) -> None:
        """Finish the outgoing requests of a stream, because no answers can arrive on it."""
        for request in self._outgoing.end_stream(stream):
            request.slot.discard(request)
            request.finish()

    def abandon(self, stream: int) -> None:
        """Cancel all outgoing requests of a stream whose answers are no longer wanted."""
        for request in self._outgoing.end_stream(stream):
            if not request.done:
                request.slot.discard(request)
                self._send_cancel(request)
                request.finish()

    def connection_ended(self) -> None:
        """End all requests of the connection."""
        for outgoing in self._outgoing.end_all():
            outgoing.slot.discard(outgoing)
            outgoing.finish()
        self._cut_off(self._incoming.end_all())

    def expire(self, request: OutgoingRequest) -> None:
        """Finish and cancel a request whose deadline has passed."""
        if not request.done:
            request.late = True
            self._send_cancel(request)
            request.finish()

    def _cut_off(self, requests: list[IncomingRequest]) -> None:
        for request in requests:
            self._connection.account.release(request.weight)
            request.end(cancelled=True)

    def _send_cancel(self, request: OutgoingRequest) -> None:
        try:
            payload = encode({keys.REQUEST: request.async_id})
            self._connection.send(request.stream, 0, SIM, CANCEL, payload)
        except LocalError:
            return  # The sending direction is finished, or the connection is closing.

    def _cancelled(self, stream: int, payload: bytes) -> bool:
        try:
            async_id = event_types.CANCEL.read(payload)[keys.REQUEST]
        except LbmDecodeError:
            return False
        request = self._incoming.get(stream, async_id)
        if request is None:
            return False
        # The request stays registered, because it must still be answered once.
        request.end(cancelled=True)
        return True
