"""Streams over one connection: opening, data, credit, finishing, resetting (section 8).

Received events are validated here, after decryption and before they are reported. This module
doesn't encrypt: control events are passed to `control`, all others wait in the send queue.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from parley._lbm import keys
from parley._lbm.codec import Value, encode
from parley._node.protocol import event_types
from parley._node.protocol.codes import (
    CHUNK,
    DATA,
    FINISH,
    MAIN_STREAM,
    OPEN,
    RESET,
    SIM,
    STREAM,
    TUNNEL_LABEL,
    WINDOW,
    CloseCode,
)
from parley._node.protocol.config import CoreConfig
from parley._node.protocol.errors import (
    PayloadTooLargeError,
    check_close,
    too_large,
    violation,
)
from parley._node.protocol.event import NO_PAYLOAD, Event
from parley._node.protocol.flow_control import FIRST_TUNNEL_DATA, LARGEST_TUNNEL_DATA, TUNNEL_WINDOW
from parley._node.protocol.limits import EVENT_COST, LARGEST_CREDIT, READ_ON, WINDOWS_PART, Limits
from parley._node.protocol.memory_budget import EVENT_WEIGHT, MemoryBudget
from parley._node.protocol.reports import (
    Report,
    StreamFinished,
    StreamOpened,
    StreamReset,
    StreamWritable,
    WindowReceived,
)
from parley._node.protocol.send_queue import OutgoingEvent, SendQueue
from parley._node.protocol.streams import Flow, Streams, StreamState, stream_flows

Control = Callable[[OutgoingEvent], None]
# Smallest window in Open when memory is short.
LEAST_WINDOW = 1024
# Memory of an event in addition to its cost.
EXTRA_WEIGHT: Final = EVENT_WEIGHT - EVENT_COST


class Multiplexer:
    """The streams of one open connection, and their queued events.

    Unconsumed reports and streams of the peer are charged to `account`. Tunnels are separate: their
    windows grow by a fixed total, and Data in them is accepted even when memory is short.

    Attributes: watched: streams for which StreamWritable is reported once their queue is empty.
    windows: by label, the windows that a request (Subscribe) specified for streams that the peer
    opens in response. unconsumed: cost of the reports that haven't been consumed. expected: how
    many Windows and Resets of the peer our events explain.
    """

    def __init__(
        self,
        config: CoreConfig,
        limits: Limits,
        streams: Streams,
        outbox: SendQueue,
        control: Control,
        forget: Callable[[int, bool], None],
        received: list[Report],
        reports: list[Report],
        account: MemoryBudget,
    ) -> None:
        self._account = account
        self._windows = config.peer_memory // WINDOWS_PART
        self.limits = limits
        self.stream_table = streams
        self.control = control
        self._forget = forget
        self._received = received  # reports of the peer's events, which may have to wait for a seal
        self._reports = reports
        # Empty dicts, because empty sets take three times as much memory.
        self.watched: dict[int, None] = {}
        self._starved: dict[int, None] = {}  # also watched, with an empty queue but without credit
        self.outbox = outbox
        self.windows: dict[str, int] = {}
        self.unconsumed = 0
        self._unconsumed_events = 0
        self.expected = 0

    # Received events.

    def receive(self, event: Event) -> bool:
        """Process an event that isn't on stream 0. Return False if it is dropped and not limited by
        credit, so that the caller must count it.

        Raises:
            RemoteProtocolError: the event isn't allowed.
            LbmDecodeError: its payload is malformed.
        """
        stream, payload = event.stream, event.payload
        category, subcategory = event.category, event.subcategory
        if len(payload) > self.limits.max_payload:
            raise too_large(f"a payload of {len(payload)} bytes")
        if stream == MAIN_STREAM:
            if category > STREAM or (category, subcategory) == (STREAM, DATA):
                if payload == NO_PAYLOAD and category != STREAM:
                    event.payload = b""
                self._received.append(event)
                return True
            raise violation(f"event {category}/{subcategory} on stream 1")
        if category < STREAM:
            raise violation(
                f"event {category}/{subcategory} on stream {stream}; category 1 has stream 0"
            )
        known = self.stream_table.open.get(stream)
        if known is None:
            self.stream_table.admit(stream)
            if (category, subcategory) != (STREAM, OPEN):
                raise violation(f"event {category}/{subcategory} opens stream {stream}")
            self._opened(stream, event_types.OPEN.read(payload))
            return True
        if not known.remote_open:
            raise violation(f"an event on the ended direction of stream {stream}")
        if category == STREAM and subcategory != DATA:
            if subcategory != FINISH or payload != NO_PAYLOAD:
                raise violation(f"event 2/{subcategory} on stream {stream}")
            self._end_remote(known)
            if not known.resetting:
                self._received.append(StreamFinished(stream))
            return True
        cost = 0
        if category != SIM or subcategory != CHUNK:
            cost = len(payload) + EVENT_COST
            known.window.take(cost)
        if known.resetting:
            return cost > 0  # credit limits the events that arrive until the peer reads our Reset
        if not ((known.apart and category == STREAM) or self._account.has_room()):
            # Windows of streams that the peer opened can't be reduced, so the limit can be exceeded
            # by one event.
            self.reset(stream, CloseCode.OVERLOADED, "")
            self._received.append(StreamReset(stream, int(CloseCode.OVERLOADED), ""))
            return True
        if cost:
            self.unconsumed += cost
            self._unconsumed_events += 1
            self._account.charge(cost + EXTRA_WEIGHT)
        if payload == NO_PAYLOAD and category != STREAM:
            event.payload = b""
        event.cost = cost
        self._received.append(event)
        return True

    def window_received(self, cells: Mapping[int, Any]) -> None:
        """Handle 2/2 Window on stream 0."""
        stream, credit = cells[keys.STREAM], cells[keys.CREDIT]
        request = cells.get(keys.REQUEST)
        if request is not None:
            if stream == MAIN_STREAM or self.stream_table.get_live(stream) is not None:
                self._received.append(WindowReceived(stream, request, credit))
            return
        known = self.stream_table.get_live(stream)
        if known is None or not known.local_open:
            return
        known.credit.grant(credit)
        if known.credit.left > 0:
            self.outbox.unblock(stream)
            if stream in self._starved:
                del self._starved[stream]
                self._reports.append(StreamWritable(stream))

    def reset_received(self, cells: Mapping[int, Any]) -> None:
        """Handle 2/4 Reset on stream 0: end both directions, and answer with Reset if ours is
        open.
        """
        stream, code = cells[keys.STREAM], cells[keys.CODE]
        text = cells.get(keys.TEXT, "")
        known = self.stream_table.get_live(stream)
        if known is None:
            return
        quiet = known.resetting
        self._end_remote(known)
        if known.local_open:
            self.outbox.drop(stream)
            self._send_reset(stream, code, "")
            self._end_local(known)
        if not quiet:
            self._received.append(StreamReset(stream, code, text))

    # Sent events.

    def open_stream(self, label: str, window: int | None, credit: int | None = None) -> int:
        """Open a stream. Open is encrypted immediately, so that later events can't overtake it.

        `credit` is how many bytes the peer is known to accept.
        """
        if not isinstance(label, str):  # otherwise the peer would end the connection
            raise TypeError(
                f"invalid stream label {label!r}: expected str, got {type(label).__name__}"
            )
        limits = self.limits
        if apart := label == TUNNEL_LABEL:
            window = credit = TUNNEL_WINDOW
        elif window is None:
            room = self._windows - self.stream_table.committed
            window = max(
                LEAST_WINDOW, min(limits.stream_window, room // 8)
            )  # a part for each stream
        elif not 1 <= window <= LARGEST_CREDIT:
            raise ValueError(f"invalid window {window}: expected 1 to {LARGEST_CREDIT} bytes")
        cells: dict[int, Value] = {keys.LABEL: label}
        if window != limits.stream_window:
            cells[keys.WINDOW] = window
        payload = encode(cells)
        if len(payload) > limits.max_payload:
            size, largest = len(payload), limits.max_payload
            raise PayloadTooLargeError(
                f"stream label too long: its payload has {size} bytes, at most {largest}"
            )
        known = self.stream_table.open_local(credit or limits.stream_window, window, apart=apart)
        self.expected += 2
        self.control(OutgoingEvent(known.id, 0, STREAM, OPEN, payload))
        return known.id

    def send_data(self, stream: int, data: bytes | memoryview) -> None:
        """Queue 2/5 Data, at least 1 byte, on an open stream; raises the same errors as
        `Connection.send`.
        """
        size, most = len(data), self.limits.max_payload
        if size > most:
            raise PayloadTooLargeError(
                f"cannot send a payload of {size} bytes: {most} bytes were agreed (max_payload)"
            )
        credit = self.stream_table.get_local(stream).credit
        cost = size + EVENT_COST
        self.outbox.put(OutgoingEvent(stream, 0, STREAM, DATA, data, False, cost), credit)
        self.expected += 1 + cost // READ_ON

    def hold(self, stream: int) -> None:
        """Hold back the events of a stream until an event that `releases` it is written."""
        self.outbox.hold(stream)

    def release(self, stream: int) -> None:
        """Release a held stream, because the event that would release it isn't sent."""
        self.outbox.release(stream)

    def drop_waiting(self, stream: int) -> None:
        self.outbox.drop(stream)

    def grant(self, stream: int, request: int, credit: int) -> None:
        """Grant the peer credit for the Chunks of its response to our request."""
        cells: dict[int, Value] = {keys.STREAM: stream, keys.CREDIT: credit, keys.REQUEST: request}
        self.control(OutgoingEvent(0, 0, STREAM, WINDOW, encode(cells)))

    def finish(self, stream: int) -> None:
        """Queue Finish after the events of the stream."""
        known = self.stream_table.get_local(stream)
        known.finishing = True
        self.outbox.put(OutgoingEvent(stream, 0, STREAM, FINISH, NO_PAYLOAD), known.credit)

    def reset(self, stream: int, code: int, text: str) -> None:
        """End both directions immediately; does nothing if the stream is closed."""
        check_close(code, text, CloseCode.REFUSED)
        known = self.stream_table.open.get(stream)
        if known is None or known.resetting:
            return
        self.outbox.drop(stream)
        self._send_reset(stream, code, text)
        known.resetting = True
        self._end_local(known)

    def free(self, cost: int, count: int) -> None:
        """Stop charging reports that the caller limits itself; grant their credit with
        `give_back`.
        """
        self.unconsumed -= cost
        self._unconsumed_events -= count
        self._account.release(cost + EXTRA_WEIGHT * count)

    def give_back(self, stream: int, cost: int) -> None:
        """Grant the credit of freed reports when it is due."""
        known = self.stream_table.open.get(stream)
        if known is None or not known.remote_open or known.resetting:
            return
        grant = self.stream_table.consume(known, cost, self._windows)
        if grant:
            payload = encode({keys.STREAM: stream, keys.CREDIT: grant})
            self.control(OutgoingEvent(0, 0, STREAM, WINDOW, payload))

    def resize(self, stream: int, window: int) -> None:
        """Set the window of a stream of the peer to the one that a request specified."""
        known = self.stream_table.open.get(stream)
        if known is not None:
            self.stream_table.resize(known, window)

    def credit(self, stream: int) -> int:
        """Return how many bytes may be sent on a stream from 2 up, including queued events; 0 if
        our direction has ended.
        """
        known = self.stream_table.open.get(stream)
        return known.credit.left if known is not None and known.local_open else 0

    def largest_sent(self, stream: int) -> int:
        """Return the length of the longest Data that may be sent on a tunnel."""
        known = self.stream_table.open.get(stream)
        grown = known is not None and known.credit.highest > TUNNEL_WINDOW
        return min(LARGEST_TUNNEL_DATA if grown else FIRST_TUNNEL_DATA, self.limits.max_payload)

    def largest_received(self, stream: int) -> int:
        """Return the length of the longest Data that the peer may send on a tunnel."""
        known = self.stream_table.open.get(stream)  # None if it ended after the Data
        grown = known is None or known.window.size > TUNNEL_WINDOW
        return LARGEST_TUNNEL_DATA if grown else FIRST_TUNNEL_DATA

    def watch(self, stream: int, *, credit: bool) -> None:
        """Report StreamWritable once; see `Connection.notify_writable`."""
        known = self.stream_table.open.get(stream)
        if self.outbox.waiting(stream):
            self.watched[stream] = None
        elif credit and known is not None and known.local_open and known.credit.left <= 0:
            self._starved[stream] = None
        else:
            self._reports.append(StreamWritable(stream))
            self.outbox.waker.changed()

    def watch_credit(self, stream: int) -> None:
        """Like `watch`, but wait for more credit.

        Raises:
            LocalProtocolError: our direction has ended.
        """
        self.stream_table.get_local(stream)
        self._starved[stream] = None

    def event_encrypted(self, event: OutgoingEvent) -> None:
        """Update credit and state after an event was taken from the send queue and encrypted."""
        stream = event.stream
        if event.category == STREAM and event.subcategory == FINISH:
            self._end_local(self.stream_table.open[stream])
        elif self.watched and stream in self.watched and not self.outbox.waiting(stream):
            del self.watched[stream]
            self._reports.append(StreamWritable(stream))

    def end(self) -> None:
        self.outbox.clear()
        self.stream_table.end()
        self._account.release(self.unconsumed + EXTRA_WEIGHT * self._unconsumed_events)

    def flow(self) -> Flow:
        streams = self.stream_table
        return Flow(stream_flows(streams), self.unconsumed, streams.committed, self.outbox.count)

    # Internal steps.

    def _opened(self, stream: int, cells: Mapping[int, Any]) -> None:
        label = cells[keys.LABEL]
        window = TUNNEL_WINDOW if (apart := label == TUNNEL_LABEL) else self.limits.stream_window
        credit, window = cells.get(keys.WINDOW, window), self.windows.get(label, window)
        self.stream_table.open_remote(stream, credit, window, apart=apart)
        self.expected += 2
        if self._account.has_room():
            self._received.append(StreamOpened(stream, label))
        else:
            self.reset(stream, CloseCode.OVERLOADED, "")

    def _send_reset(self, stream: int, code: int, text: str) -> None:
        cells: dict[int, Value] = {keys.STREAM: stream, keys.CODE: code}
        if text:
            cells[keys.TEXT] = text
        self.control(OutgoingEvent(0, 0, STREAM, RESET, encode(cells)))

    def _end_local(self, stream: StreamState) -> None:
        self.stream_table.end_local(stream)
        self._forget(stream.id, True)
        if stream.id in self.watched or stream.id in self._starved:
            self.watched.pop(stream.id, None)
            self._starved.pop(stream.id, None)
            self._reports.append(StreamWritable(stream.id))

    def _end_remote(self, stream: StreamState) -> None:
        self.stream_table.end_remote(stream)
        self._forget(stream.id, False)
