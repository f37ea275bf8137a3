"""A small application on a fuzzed SimProto core, with the dialect's sim layer under it.

It processes each report as a gateway does, and checks that every wait is bounded and ends once; a
script controls its other actions. It doesn't handle encoded messages.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from parley._lbm.codec import decode_value
from parley._node.dialects.simproto.codec import RPC
from parley._node.dialects.simproto.core import RequestReceived, SimProtoCore
from parley._node.dialects.simproto.feeds import SimProtoFeed
from parley._node.dialects.simproto.requests import SimProtoRequest
from parley._node.dialects.simproto.sim import NoteQueue, Sim, UnsubscribeAnswered
from parley._node.messaging.fanout import Fanout, Slow
from parley._node.messaging.incoming_calls import IncomingCall
from parley._node.messaging.notes import Batch, encode_note
from parley._node.protocol.codes import ResultCode
from parley._node.protocol.limits import EVENT_COST
from parley._node.protocol.reports import ConnectionEnded, PongReceived
from tests.fuzz.script import Step

CALLS: Final = ("echo", "wait", "fail")
TOPICS: Final[dict[str, Slow]] = {
    "news": "drop-oldest",
    "secret": "unsubscribe",
    "odd": "unsubscribe",
}
NAMES: Final = tuple(TOPICS)
# Few, so that a short script reaches the bounds; bytes.
FEED_LIMIT: Final = 2048
WINDOW: Final = 300
PATIENCE: Final = 5.0
# What the document has for a subscription that there is not.
REFUSED: Final = (1, 2, 3)


class Reader:
    """A subscription of the core."""

    def __init__(self, side: "SimProtoSide", topic: str) -> None:
        self.topic = topic
        self.over = False
        self.queue = NoteQueue(WINDOW, PATIENCE, side.acknowledge, lambda: None)

    def cut_off(self) -> None:
        """It was not read in time."""
        assert not self.over
        self.over = True
        self.queue.close()

    def lost(self, code: int, text: str) -> None:
        """The connection is over."""
        assert not self.over
        self.over = True


class SimProtoSide:
    """Answer calls of `echo`, keep calls of `wait`, and fail calls of `fail`.

    Publishes `news` and, to a peer that sends no data with it, `odd`; rejects readers of `secret`.
    """

    def __init__(
        self,
        core: SimProtoCore,
        hear: Callable[[bytes], None],
        now: Callable[[], float],
    ) -> None:
        self.core = core
        self.hear = hear
        self.now = now
        self.sim = sim = Sim(core, self._find, self._run, self._stop, TOPICS.__contains__)
        self.room = sim.room
        self._fanouts = {name: Fanout(name, FEED_LIMIT, slow) for name, slow in TOPICS.items()}
        self._feeds: list[SimProtoFeed] = []
        self._running: deque[IncomingCall] = deque()
        self._asked: list[SimProtoRequest] = []
        self._done = 0
        self._readers: list[Reader] = []
        self._subscribed: list[tuple[str, Reader, SimProtoRequest]] = []
        self._woken: deque[Callable[[], None]] = deque()
        self._ended = False
        self._acts: Final = (
            self._call,
            self._subscribe,
            self._leave,
            self._give_up,
            self._publish,
            self._read,
            self._answer,
            self._ping,
            self._flush,
            self._finish_topic,
            self._call_briefly,
            self._wait_for_room,
        )

    # For the line.

    def take(self, report: Any) -> None:
        """Take a report."""
        if isinstance(report, RequestReceived | UnsubscribeAnswered):
            self.sim.take(report, self.now())
        else:
            assert isinstance(report, PongReceived)
            assert report.round_trip >= 0

    def end(self, ended: ConnectionEnded) -> None:
        """The connection is over."""
        self._ended = True
        reading = [r for r in self._readers if self.sim.subscriptions.reads(r.topic, r)]
        self.sim.connection_ended(ended.code, ended.text)
        assert all(reader.over for reader in reading)

    def next_deadline(self) -> float:
        """When `handle_deadline` has something to do."""
        return self.sim.next_deadline()

    def handle_deadline(self, now: float) -> None:
        """Run everything that is due."""
        self.sim.handle_deadline(now)

    def check(self) -> None:
        """Return whether the waiting requests are bounded and have an owner."""
        limits = self.core.limits
        assert self.core.owed <= limits.requests
        # More only if requests about a topic wait for a decision about it.
        more = len(self.sim.incoming) - len(self._running)
        assert more == 0 or (more > 0 and any(call.subcategory != RPC for call in self._running))
        assert 0 <= self.core.free_dialogs <= limits.requests
        for reader in self._readers:
            assert len(reader.queue) * EVENT_COST <= 2 * WINDOW + EVENT_COST
        for feed in self._feeds:
            assert 0 <= feed.cost <= FEED_LIMIT
            assert feed.left[0] >= 0
        assert self._done == sum(call.done for call in self._asked)

    def finish(self) -> bool:
        """Answer and read all that waits; whether anything did."""
        busy = bool(self._running)
        while self._running:  # what waited for a decision may come in its place
            self._answer_late(self._running.popleft())
        for reader in self._readers:
            while len(reader.queue):
                reader.queue.take()
                busy = True
        while self._woken:  # who has a turn takes it or passes it on
            self.room.leave(self._woken.popleft())
            busy = True
        return busy

    def check_finished(self) -> None:
        """Check that once all requests are answered, no response is owed and no request waits for
        capacity.
        """
        if self._ended:
            return
        assert not self.core.owed
        if self.core.free_dialogs == self.core.limits.requests:
            assert all(feed.left == (0, 0) for feed in self._feeds if feed.open)
        for topic, reader, call in self._subscribed:
            assert call.code not in REFUSED or not self.sim.subscriptions.reads(topic, reader)

    def check_end(self) -> None:
        """Check that no request waits."""
        assert not self._running
        assert all(call.done for call in self._asked)
        assert not any(feed.open for feed in self._feeds)
        assert not self.sim.incoming

    # For the sim layer.

    def _find(self, kind: int, topic: str) -> ResultCode:
        if topic not in (CALLS if kind == RPC else TOPICS):
            return ResultCode.TOPIC_NOT_FOUND
        if kind != RPC and self.sim.is_subscribed(topic):
            return ResultCode.ALREADY_SUBSCRIBED
        return ResultCode.ACCEPTED

    def _run(self, call: IncomingCall) -> None:
        if call.topic == "wait":
            self._running.append(call)
        elif call.topic in ("echo", "fail"):
            code = ResultCode.ACCEPTED if call.topic == "echo" else ResultCode.HANDLER_FAILED
            self._answer_now(call, code)
        elif call.topic == "news" and call.data is not None:
            self._running.append(call)  # it is decided on later
        else:
            self._decide(call)

    def _decide(self, call: IncomingCall) -> None:
        if call.topic == "news" or (call.topic == "odd" and call.data is None):
            if self._answer_now(call, ResultCode.ACCEPTED):
                self._join(call.topic)
        else:
            rejected = call.topic == "secret"
            self._answer_now(call, ResultCode.REJECTED if rejected else ResultCode.OVERLOADED)
        self.sim.incoming.decided(call, self.now())

    def _answer_now(self, call: IncomingCall, code: int) -> bool:
        data = call.data if isinstance(call.data, bytes) else b""
        return self.sim.incoming.answer(call, code, data, self.now())

    def _join(self, topic: str) -> None:
        feed = SimProtoFeed(self._fanouts[topic], self, self, self.sim.remove_feed)
        self.sim.add_feed(feed)
        self._fanouts[topic].join(feed)
        self._feeds.append(feed)

    def _stop(self, call: IncomingCall) -> None:
        assert call.answered
        if call in self._running:
            self._running.remove(call)
        else:  # it waited for its turn
            assert call.subcategory != RPC

    def acknowledge(self, dialog: int) -> None:
        """A note has its place."""
        self.sim.subscriptions.acknowledge(dialog, self.now())

    # For its feeds, as their publisher.

    def convert(self, batch: Batch) -> Sequence[bytes | None]:
        """Encode bytes unchanged; other values have no form."""
        return batch.in_form("bytes", _bytes_of)

    def cut_off(self, feed: SimProtoFeed) -> None:
        """A subscriber was too slow."""
        assert feed.topic == "odd", "it loses notes instead"

    # What a script makes it do.

    def act(self, step: Step) -> None:
        """Do one thing; LocalError if it may not be done now."""
        self._acts[step.subcategory % len(self._acts)](step)

    def _finished(self) -> None:
        self._done += 1

    def _call(self, step: Step) -> None:
        self._ask(step, None)

    def _call_briefly(self, step: Step) -> None:
        self._ask(step, step.stream / 8)

    def _ask(self, step: Step, timeout: float | None) -> None:
        asking = self.sim.outgoing
        call = asking.call("echo", step.payload, self.now(), timeout, self._finished)
        self._asked.append(call)

    def _subscribe(self, step: Step) -> None:
        topic = NAMES[step.stream % len(NAMES)]
        reader = Reader(self, topic)
        asking = self.sim.outgoing
        call = asking.subscribe(topic, step.payload, self.now(), 5.0, self._finished)
        self.sim.subscriptions.expect(topic, reader, call)
        self._asked.append(call)
        self._subscribed.append((topic, reader, call))
        if self.sim.subscriptions.reads(topic, reader):
            self._readers.append(reader)

    def _leave(self, step: Step) -> None:
        if self._readers:
            reader = self._readers.pop(step.stream % len(self._readers))
            reader.queue.close()
            self.sim.subscriptions.leave(reader.topic, reader, self.now())

    def _give_up(self, step: Step) -> None:
        if self._asked:
            call = self._asked.pop(step.stream % len(self._asked))
            self._done -= call.done
            self.sim.outgoing.cancel(call)

    def _publish(self, step: Step) -> None:
        fanout = self._fanouts[NAMES[step.stream % len(NAMES)]]
        for _ in range(1 + step.async_id % 8):
            fanout.add(encode_note(step.payload if step.payload else 1))
        fanout.flush()

    def _read(self, step: Step) -> None:
        for reader in self._readers:
            if len(reader.queue):
                reader.queue.take()

    def _answer(self, step: Step) -> None:
        if self._running:
            self._answer_late(self._running.popleft(), step.stream, step.payload)

    def _answer_late(self, call: IncomingCall, code: int = 0, data: bytes = b"late") -> None:
        if call.subcategory != RPC:
            self._decide(call)
            return
        self.sim.incoming.answer(call, code, data, self.now())
        self.sim.incoming.answer(call, ResultCode.ACCEPTED, b"twice", self.now())

    def _ping(self, step: Step) -> None:
        self.core.ping(self.now())

    def _flush(self, step: Step) -> None:
        self.sim.flush()

    def _finish_topic(self, step: Step) -> None:
        for feed in list(self._feeds):
            feed.finish()

    def _wait_for_room(self, step: Step) -> None:
        """Wait for a dialog, or discard the expected one."""
        if step.stream % 2 and self._woken:
            self.room.leave(self._woken.popleft())
            return

        def wake() -> None:
            self._woken.append(wake)

        self.room.wait(wake)


def _bytes_of(note: bytes) -> bytes | None:
    value = decode_value(note)
    return value if isinstance(value, bytes) else None
