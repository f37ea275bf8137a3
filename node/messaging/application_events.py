"""The application's own events on streams: their types, and requests among them (section 2)."""

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
    """What a stream carries: events of `categories`, answers among them always, others
    if `events`; Data if `data`. `asks` says whether events ask by their async id, and `calls`
    whether calls, topics and named events are accepted too."""

    categories: range
    events: bool = True
    data: bool = True
    asks: bool = True
    calls: bool = True

    def encode(
        self, category: int, subcategory: int, data: Encodable, payload: bytes | None, largest: int
    ) -> tuple[bytes, bool]:
        """The payload of an event on such a stream, and whether it is LBM: a `payload` is, but
        for an application's. Raises ValueError for another's event, else as `encode_payload`."""
        check_type(category, subcategory, self)
        body, lbm = encode_payload(data, payload, largest)
        return body, lbm or category < FIRST_APPLICATION_CATEGORY


APPLICATION: Final = Carries(range(FIRST_APPLICATION_CATEGORY, LAST_NUMBER + 1))
# A stream `bus` where it was opened: nothing is asked there.
BUS_ASKING: Final = Carries(range(BUS, BUS + 1), events=False, data=False)
# Streams with reserved labels, where they were opened and where they are served.
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
    """Raise ValueError unless the category is one that the stream carries (an application's:
    64..255) and the subcategory 1..255."""
    if category not in carries.categories or not 1 <= subcategory <= LAST_NUMBER:
        raise ValueError(f"{category}/{subcategory} is not a type of an application's event")


def answering_types(types: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """The types of events that are answers, as pairs of category and subcategory.

    Raises:
        ValueError: one of them is not a type of an application's event.
    """
    try:
        answers = frozenset((category, subcategory) for category, subcategory in types)
    except (TypeError, ValueError):
        raise ValueError(
            f"answers is {types!r}; it must be pairs of category and subcategory"
        ) from None
    for category, subcategory in answers:
        check_type(category, subcategory)
    return answers


def parse_types(given: Iterable[tuple[int, int]]) -> frozenset[tuple[int, int]]:
    """Return an application's event types, pairs of category and subcategory.

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
    """The payload of an event, empty for none, and whether it is LBM.

    `data` goes into cell 22, `payload` as it is; `largest` is the agreed `max_payload`.

    Raises:
        ValueError: both are given.
        LbmEncodeError: `data` has no encoding.
        PayloadTooLargeError: it is longer than `largest`.
        LocalProtocolError: `payload` is the single byte 0x00, which means 'none'.
    """
    if payload is not None and data is not None:
        raise ValueError(
            f"data is a {type(data).__name__} and payload has {len(payload):,} bytes; give one of "
            "them"
        )
    if payload is not None:
        body = bytes(memoryview(payload))
        if body == NO_PAYLOAD:
            raise LocalProtocolError("the payload 0x00 means that the event has no payload")
    else:
        body = b"" if data is None else encode({keys.DATA: data})
    if len(body) > largest:
        raise PayloadTooLargeError(f"a payload of {len(body)} bytes; {largest} were agreed")
    return body, payload is None


# Requests of the base protocol, which take their ids from the same table.
_BASE_REQUESTS: Final = frozenset(
    {(SIM, CALL), (SIM, SUBSCRIBE), (SIM, UNSUBSCRIBE), (SIM, NOTIFY), (NAMED, EMIT)}
)


class OutgoingRequest:
    """A request of ours. `on_done` is called once: `answer` is there, or it is `late`, or
    the stream has ended so that no answer can come. `unwanted` gets the answer that comes
    after it was given up."""

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
        """Let who waits look; a second time changes nothing."""
        if not self.done:
            self.done = True
            self.on_done()


class IncomingRequest:
    """A request of the other side. `over` once it was answered or is `cancelled`: nobody
    waits for its answer, or none can be sent. `on_over` is called then. `weight` is charged
    for it, since whoever is to answer has its payload."""

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
        """It is over; a second time changes nothing."""
        if not self.over:
            self.over = True
            self.cancelled = cancelled
            if self.on_over is not None:
                self.on_over()


class StreamRequests:
    """All requests by application events on one connection, both ways.

    `require_free` raises if the other side's id is taken by a request of another kind.
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
        return f"<StreamRequests: {len(self._outgoing)} of ours, {len(self._incoming)} of theirs>"

    def __len__(self) -> int:
        return len(self._outgoing) + len(self._incoming)

    # Asking.

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
        """Send a request; `timeout` is seconds from `now`, None for no deadline.

        Raises:
            LocalError: the stream is not open for sending, or 65,535 requests wait on it already.
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
        """Nobody waits for it any more: send Cancel; its id stays busy for now. `unwanted` gets
        the payload of its answer, be it there already or to come."""
        if not request.done:
            request.done = True
            request.unwanted = unwanted
            request.slot.discard(request)
            self._send_cancel(request)
        elif unwanted is not None and request.answer is not None:
            unwanted(request.answer.payload)

    def answer_received(self, event: Event) -> bool:
        """Take an event of an answering type; returns whether there was its request."""
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

    # Being asked.

    def request_received(self, stream: int, async_id: int, size: int) -> IncomingRequest | None:
        """Remember a request with a payload of `size` bytes, to be answered; None if too many
        are unanswered, or there is no room.

        Raises:
            RemoteProtocolError: `protocol-error`, the id belongs to an unanswered one.
        """
        self._require_free(stream, async_id)
        incoming, account = self._incoming, self._connection.account
        weight = size + EVENT_WEIGHT
        if incoming.get(stream, async_id) is None and (
            len(incoming.by_id) >= incoming.count_limit or not account.try_charge(weight)
        ):
            return None
        request = IncomingRequest(stream, async_id, weight)
        incoming.add(stream, async_id, request)  # which refuses an id that is taken
        return request

    def answer_sent(self, request: IncomingRequest) -> None:
        """Its answer is queued: the id is free as soon as it arrives."""
        if self._incoming.pop(request.stream, request.async_id) is not None:
            self._connection.account.release(request.weight)
        request.end(cancelled=False)

    def claims(self, event: Event) -> bool:
        """Whether an event of the base protocol is about these requests: a Cancel.

        Raises:
            RemoteProtocolError: `protocol-error`, it asks under an id that is taken here.
        """
        stream, async_id, category, subcategory, payload, _ = event
        if (category, subcategory) == (SIM, CANCEL):
            return self._cancelled(stream, payload)
        if self._incoming.get(stream, async_id) and (category, subcategory) in _BASE_REQUESTS:
            raise violation(f"async id {async_id} is used twice on stream {stream}")
        return False

    # Ends and deadlines.

    def local_ended(self, stream: int) -> None:
        """Our direction has ended: nothing on it can be answered any more."""
        self._cut_off(self._incoming.end_stream(stream))

    def remote_ended(self, stream: int) -> None:
        """The other side's direction has ended: it answers nothing any more."""
        for request in self._outgoing.end_stream(stream):
            request.slot.discard(request)
            request.finish()

    def abandon(self, stream: int) -> None:
        """Nobody here waits for answers on it any more: say so, as long as that is possible."""
        for request in self._outgoing.end_stream(stream):
            if not request.done:
                request.slot.discard(request)
                self._send_cancel(request)
                request.finish()

    def connection_ended(self) -> None:
        """Both directions of all streams have ended."""
        for outgoing in self._outgoing.end_all():
            outgoing.slot.discard(outgoing)
            outgoing.finish()
        self._cut_off(self._incoming.end_all())

    def expire(self, request: OutgoingRequest) -> None:
        """Give up a request whose deadline has passed."""
        if not request.done:
            request.late = True
            self._send_cancel(request)
            request.finish()

    # Inside.

    def _cut_off(self, requests: list[IncomingRequest]) -> None:
        for request in requests:
            self._connection.account.release(request.weight)
            request.end(cancelled=True)

    def _send_cancel(self, request: OutgoingRequest) -> None:
        try:
            payload = encode({keys.REQUEST: request.async_id})
            self._connection.send(request.stream, 0, SIM, CANCEL, payload)
        except LocalError:
            return  # our direction is finished, or the connection is closing

    def _cancelled(self, stream: int, payload: bytes) -> bool:
        try:
            async_id = event_types.CANCEL.read(payload)[keys.REQUEST]
        except LbmDecodeError:
            return False
        request = self._incoming.get(stream, async_id)
        if request is None:
            return False
        # It stays in the table: it is still owed its one answer.
        request.end(cancelled=True)
        return True
