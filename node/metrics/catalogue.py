"""The catalogue of metric families.

A family's name has no prefix `parley_` and no suffix for its kind and unit: exporters add what
their formats expect.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

# counter: only grows; gauge: a level; histogram: how many observations up to each bound.
Kind = Literal["counter", "gauge", "histogram"]

# Upper bounds in seconds, from what a lone call takes here to what a person waits for.
SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
SECONDS_BOUNDS: Final = (*SECONDS, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric: `help` is a sentence, `unit` empty, `seconds` or `bytes`, `labels` the names of its
    labels."""

    name: str
    kind: Kind
    help: str
    unit: str = ""
    labels: tuple[str, ...] = ()

    @property
    def full_name(self) -> str:
        """The name for Prometheus, such as `parley_calls_received_total`."""
        unit = f"_{self.unit}" if self.unit else ""
        return f"parley_{self.name}{unit}{'_total' if self.kind == 'counter' else ''}"


class Histogram:
    """Counts of observations up to each bound, and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS_BOUNDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one is of those beyond
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count an observation."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def buckets(self) -> Iterator[tuple[str, int]]:
        """Each upper bound as text, ending with `+Inf`, and the number of observations up to it."""
        count = 0
        bounds = (*map(str, self.bounds), "+Inf")
        for bound, more in zip(bounds, self.counts, strict=True):
            count += more
            yield bound, count

    @property
    def count(self) -> int:
        """The number of observations."""
        return sum(self.counts)


class Sample(NamedTuple):
    """The values of a family's labels, and the value."""

    labels: tuple[str, ...]
    value: float | Histogram


class MetricFamily(NamedTuple):
    """A measure and its current samples."""

    measure: Measure
    samples: tuple[Sample, ...]


def family(measure: Measure, value: float | Histogram) -> MetricFamily:
    """Return a family of one sample without labels."""
    return MetricFamily(measure, (Sample((), value),))


# Names of one measure that are told; those beyond are told together.
MOST_NAMES: Final = 200
OTHER_NAMES: Final = "other"


def named(
    measure: Measure,
    samples: Iterable[tuple[tuple[str, ...], float | Histogram]],
    *,
    name_size: int = 1,
) -> MetricFamily:
    """Return a family whose first `name_size` labels are names. Equal labels are summed; after 200
    names the rest is summed as `other`."""
    names: set[tuple[str, ...]] = set()
    found: dict[tuple[str, ...], float | Histogram] = {}
    for labels, value in samples:
        name, rest = labels[:name_size], labels[name_size:]
        if len(names) < MOST_NAMES:
            names.add(name)
        elif name not in names:
            name = (OTHER_NAMES,) * name_size
        key = (*name, *rest)
        found[key] = _sum(found[key], value) if key in found else value
    return labelled(measure, found.items())


def labelled(
    measure: Measure, samples: Iterable[tuple[tuple[str, ...], float | Histogram]]
) -> MetricFamily:
    """Return a family of samples with labels. Lone surrogates are escaped, because exporters cannot
    encode them."""
    found = ((tuple(map(_encodable, labels)), value) for labels, value in samples)
    return MetricFamily(measure, tuple(Sample(labels, value) for labels, value in found))


def _encodable(label: str) -> str:
    return label if label.isascii() else label.encode("utf-8", "backslashreplace").decode()


def _sum(one: float | Histogram, other: float | Histogram) -> float | Histogram:
    if isinstance(one, Histogram) and isinstance(other, Histogram):
        total = Histogram(one.bounds)
        total.counts = [a + b for a, b in zip(one.counts, other.counts, strict=True)]
        total.sum = one.sum + other.sum
        return total
    assert not isinstance(one, Histogram)
    assert not isinstance(other, Histogram)
    return one + other


CATALOGUE: Final[dict[str, Measure]] = {}


def _measure(name: str, kind: Kind, help: str, *labels: str, unit: str = "") -> Measure:
    measure = CATALOGUE[name] = Measure(name, kind, help, unit, labels)
    return measure


def _seconds(name: str, kind: Kind, help: str, *labels: str) -> Measure:
    return _measure(name, kind, help, *labels, unit="seconds")


def _bytes(name: str, kind: Kind, help: str, *labels: str) -> Measure:
    return _measure(name, kind, help, *labels, unit="bytes")


# Connections and sessions.
CONNECTIONS: Final = _measure(
    "connections",
    "gauge",
    "Connections, by direction and state.",
    "direction",
    "state",
)
CONNECTIONS_LIMIT: Final = _measure(
    "connections_limit", "gauge", "How many there may be (max_connections)."
)
HANDSHAKING_LIMIT: Final = _measure(
    "handshaking_limit", "gauge", "Accepted connections that may be opening."
)
CONNECTIONS_REFUSED: Final = _measure(
    "connections_refused", "counter", "Connections that a limit kept out.", "reason"
)
CONNECTIONS_ENDED: Final = _measure(
    "connections_ended", "counter", "Open connections that ended, by code.", "code"
)
HANDSHAKES: Final = _measure(
    "handshakes", "counter", "Handshakes that are over, by result.", "direction", "result"
)
HANDSHAKE_TIME: Final = _seconds(
    "handshake", "histogram", "From the first byte to an open connection."
)
SESSIONS_SUSPENDED: Final = _measure(
    "sessions_suspended", "counter", "Times that a session lost its transport."
)
SESSIONS_RESUMED: Final = _measure(
    "sessions_resumed", "counter", "Times that one went on over another transport."
)
SESSIONS_WAITING: Final = _measure(
    "sessions_waiting", "gauge", "Sessions without a transport that may come back."
)
SESSIONS_WAITING_LIMIT: Final = _measure(
    "sessions_waiting_limit", "gauge", "How many may be kept so."
)

# What goes over them.
RECEIVED: Final = _bytes("received", "counter", "Bytes that came over connections.")
SENT: Final = _bytes("sent", "counter", "Bytes that were written to connections.")
EVENTS_DROPPED: Final = _measure("events_dropped", "counter", "Events of others that nobody took.")
QUEUED_EVENTS: Final = _measure("queued_events", "gauge", "Events that wait to be written.")
QUEUED: Final = _bytes("queued", "gauge", "Payload bytes that wait to be written.")
WRITE_WAITS: Final = _measure(
    "write_waits", "counter", "Times that a sender had to wait until others were written."
)
WRITERS_WAITING: Final = _measure("writers_waiting", "gauge", "Senders that wait so now.")
STREAMS: Final = _measure("streams", "gauge", "Open streams, but for those of topics.")
CREDIT_WAITS: Final = _measure(
    "credit_waits", "counter", "Times that a stream had something to send and no credit."
)
MEMORY: Final = _bytes("memory_held", "gauge", "Memory that others make this node hold.")
MEMORY_LIMIT: Final = _bytes("memory_limit", "gauge", "How much that may be (memory).")

# Calls.
CALLS_RECEIVED: Final = _measure(
    "calls_received", "counter", "Calls that a handler was found for, by answer.", "topic", "code"
)
CALL_RECEIVED_TIME: Final = _seconds(
    "call_received", "histogram", "From a call's arrival to its answer.", "topic"
)
EVENTS_RECEIVED: Final = _measure(
    "named_events_received", "counter", "Named events with a handler, by answer.", "event", "code"
)
REQUESTS_REFUSED: Final = _measure(
    "requests_refused", "counter", "Requests that were answered before any handler.", "code"
)
REQUESTS_RUNNING: Final = _measure(
    "requests_running", "gauge", "Requests of others that are not answered."
)
CALLS_QUEUED: Final = _measure(
    "calls_queued", "gauge", "Calls that wait since as many run as may (concurrency).", "topic"
)
CALLS_MADE: Final = _measure("calls_made", "counter", "Calls of this node, by answer.", "code")
CALL_MADE_TIME: Final = _seconds("call_made", "histogram", "From a call to its answer.")
REQUESTS_WAITING: Final = _measure(
    "requests_waiting", "gauge", "Requests of this node that have no answer."
)
ONCE_REMEMBERED: Final = _measure(
    "once_remembered", "gauge", "Calls made once that are remembered."
)

# Topics.
SUBSCRIBERS: Final = _measure("subscribers", "gauge", "Subscribers of a topic.", "topic")
NOTES_PUBLISHED: Final = _measure("notes_published", "counter", "Notes published.", "topic")
NOTES_DELIVERED: Final = _measure(
    "notes_delivered", "counter", "Notes handed on, once for each subscriber.", "topic"
)
NOTES_LOST: Final = _measure(
    "notes_lost", "counter", "Notes that subscribers lost since they were slow.", "topic"
)
NOTES_WAITING: Final = _bytes(
    "notes_waiting", "gauge", "Notes that wait for slow subscribers.", "topic"
)
NOTES_RECEIVED: Final = _measure(
    "notes_received", "counter", "Notes that came to subscriptions of this node."
)

# The loop.
PROCESSOR: Final = _seconds("loop_processor", "counter", "Processor time of the loop's thread.")
LOOP_TURN: Final = _seconds(
    "loop_turn_processor", "histogram", "Processor time of one turn of the loop; four a second."
)
LOOP_LAG: Final = _seconds("loop_lag", "histogram", "How late a timer rang; four a second.")
TURN: Final = _seconds(
    "connection_turn", "histogram", "Time that one connection kept the loop with what it brought."
)

# Links, tunnels, federation.
LINKS: Final = _measure("links", "gauge", "Links that are kept.", "state")
LINK_SESSIONS: Final = _measure("link_sessions", "counter", "Sessions that links have established.")
LINK_FAILURES: Final = _measure("link_failures", "counter", "Attempts and sessions that ended.")
TUNNELS: Final = _measure("tunnels", "gauge", "Tunnels that end here or lead through here.")
TUNNELS_DIALLED: Final = _measure(
    "tunnels_dialled", "counter", "Tunnels that others dialled, by answer.", "code"
)
TUNNELLED: Final = _bytes("tunnelled", "counter", "Bytes of tunnels that led through here.")
SERVERS: Final = _measure("federation_servers", "gauge", "Other servers that are known here.")
SERVER_LINKS: Final = _measure("federation_links", "gauge", "Links with other servers.", "state")

# Durable buses.
BUS_EVENTS: Final = _measure(
    "bus_events",
    "counter",
    "Events of buses, by what this process did, and peers on the bus that it offers.",
    "outcome",
)
BUS_LAG: Final = _measure(
    "bus_lag", "gauge", "Events that a group was never handed.", "stream", "group"
)
BUS_PENDING: Final = _measure(
    "bus_pending", "gauge", "Events handed out and not done.", "stream", "group"
)
BUS_DEAD: Final = _measure(
    "bus_dead_lettered", "counter", "Events that a group has set aside.", "stream", "group"
)
BUS_UNREACHABLE: Final = _measure(
    "buses_unreachable", "gauge", "Buses that could not be asked the last time."
)

# The journal.
JOURNAL_RECORDS: Final = _measure("journal_records", "counter", "Records written.")
JOURNAL_WRITTEN: Final = _bytes("journal_written", "counter", "Bytes written.")
JOURNAL_WAITING: Final = _bytes("journal_waiting", "gauge", "Bytes that wait for the disk.")
JOURNAL_LIMIT: Final = _bytes("journal_waiting_limit", "gauge", "How much may wait (buffer_size).")
JOURNAL_SEGMENTS: Final = _measure("journal_segments", "counter", "Segments finished.")
JOURNAL_SESSIONS: Final = _measure("journal_sessions", "gauge", "Sessions being recorded.")
JOURNAL_FAILED: Final = _measure("journal_failed", "gauge", "1 once it could not be written.")
