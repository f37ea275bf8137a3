"""A connection as feeds see it: notes wait on it until the test writes them.

A stream writes only on request, and reports when it is empty.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import NamedTuple, cast

from parley._lbm import keys
from parley._lbm.codec import Encodable, Value, decode, encode_value
from parley._node.messaging.fanout import Fanout, Slow
from parley._node.messaging.feeds import StreamFeed
from parley._node.messaging.notes import Headers, encode_note
from parley._node.protocol.codes import NOTES, NOTIFY, SIM
from parley._node.protocol.connection import Connection
from parley._node.protocol.errors import ConnectionClosedError, LocalProtocolError
from parley._node.protocol.memory_budget import MemoryBudget


class Written(NamedTuple):
    """An event of a feed."""

    subcategory: int
    payload: bytes

    @property
    def notes(self) -> list[Value]:
        """The data of its notes."""
        cells = decode(self.payload)
        if self.subcategory == NOTIFY:
            return [cells[keys.DATA]]
        notes = cells[keys.NOTES]
        assert isinstance(notes, list)
        return notes

    @property
    def headers(self) -> dict[str, Value]:
        """The headers of a Notify."""
        headers = decode(self.payload).get(keys.HEADERS, {})
        assert isinstance(headers, dict)
        return cast(dict[str, Value], headers)


class Line:
    """One subscriber's stream; `resets` are the codes and texts that ended it."""

    def __init__(self) -> None:
        self.account = MemoryBudget(1 << 30)
        self.queue: list[Written] = []
        self.outbox = SimpleNamespace(waiting=lambda stream: len(self.queue))
        self.resets: list[tuple[int, str]] = []
        self.finishes = 0
        self.closed = False
        self.asked = False
        self.on_sent: Callable[[], None] = lambda: None

    def send(
        self, stream: int, async_id: int, category: int, subcategory: int, payload: bytes
    ) -> None:
        self._require_open()
        assert (async_id, category) == (0, SIM)
        assert subcategory in (NOTIFY, NOTES)
        self.queue.append(Written(subcategory, payload))
        self.on_sent()

    def notify_writable(self, stream: int) -> None:
        self._require_open()
        assert self.queue
        self.asked = True

    def finish_stream(self, stream: int) -> None:
        self._require_open()
        self.finishes += 1

    def reset_stream(self, stream: int, code: int, text: str = "") -> None:
        self._require_open()
        self.resets.append((code, text))
        self.queue.clear()

    def write(self, feed: StreamFeed, most: int = 1_000_000) -> list[Written]:
        """Write this many events, and report when the stream is empty."""
        written, self.queue = self.queue[:most], self.queue[most:]
        if self.asked and not self.queue:
            self.asked = False
            feed.writable()
        return written

    def write_all(self, feed: StreamFeed) -> list[Written]:
        """Everything that waits, here and with the feed."""
        written: list[Written] = []
        while more := self.write(feed):
            written += more
        return written

    def _require_open(self) -> None:
        if self.closed:
            raise ConnectionClosedError(0)
        if self.resets or self.finishes:
            raise LocalProtocolError("the stream is over")


def new_feed(
    fanout: Fanout,
    line: Line,
    *,
    max_payload: int = 1 << 20,
    on_closed: Callable[[StreamFeed], None] = lambda feed: None,
) -> StreamFeed:
    """A subscriber more; its stream is 2."""
    connection = cast(Connection, line)
    feed = StreamFeed(fanout, connection, 2, max_payload, "owner", on_closed)
    fanout.join(feed)
    return feed


def new_fanout(
    limit: int = 1 << 20,
    slow: Slow = "unsubscribe",
    on_uncrowded: Callable[[], None] | None = None,
) -> Fanout:
    """The subscribers of a topic."""
    return Fanout("prices", limit, slow, on_uncrowded=on_uncrowded)


def publish(fanout: Fanout, *notes: Encodable, headers: Headers | None = None) -> None:
    """Publish notes in one turn."""
    for note in notes:
        fanout.add(encode_note(note), headers)
    fanout.flush()


def data_of(events: list[Written]) -> list[Value]:
    """The data of all notes, in order."""
    return [note for event in events for note in event.notes]


def cost_of(note: Encodable) -> int:
    """What a note costs while it waits."""
    return len(encode_value(note)) + 64
