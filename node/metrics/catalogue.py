"""The catalogue of metric families.

A family's name has no prefix `parley_` and no suffix for its kind and unit, because the exporters
add what their formats require.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

# A counter only grows. A gauge is a current value. A histogram counts observations up to each
# bound.
Kind = Literal["counter", "gauge", "histogram"]

# Upper bounds in seconds, from the duration of a single local call to a wait that users notice.
SECONDS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
SECONDS_BOUNDS: Final = (*SECONDS, 1.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True, slots=True)
class Measure:
    """A metric: its name, kind, help text, unit and label names.

    `unit` is empty, `seconds` or `bytes`.

    Example:

        from parley.metrics import CATALOGUE

        measure = CATALOGUE["calls_received"]
        assert measure.full_name == "parley_calls_received_total"
        print(measure.help, measure.labels)
    """

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
    """Counts of observations up to each bound, and their sum.

    Example:

        from parley.metrics import Histogram

        histogram = Histogram(bounds=(0.1, 1.0))
        histogram.observe(0.5)
        assert list(histogram.buckets) == [("0.1", 0), ("1.0", 1), ("+Inf", 1)]
    """

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...] = SECONDS_BOUNDS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # the last one counts observations above all bounds
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
    """One value of a metric, with the values of its labels.

    Example:

        from parley.metrics import Sample

        sample = Sample(labels=("greet", "accepted"), value=3)
    """

    labels: tuple[str, ...]
    value: float | Histogram


class MetricFamily(NamedTuple):
    """A metric and its current samples.

    Example:

        for family in node.metrics.collect():
            for sample in family.samples:
                print(family.measure.full_name, sample.labels, sample.value)
    """

    measure: Measure
    samples: tuple[Sample, ...]


def family(measure: Measure, value: float | Histogram) -> MetricFamily:
    """Return a family of one sample without labels."""
    return MetricFamily(measure, (Sample((), value),))


# Maximum number of names in one family; further names share the label value `other`.
MOST_NAMES: Final = 200
OTHER_NAMES: Final = "other"


def named(
    measure: Measure,
    samples: Iterable[tuple[tuple[str, ...], float | Histogram]],
    *,
    name_size: int = 1,
) -> MetricFamily:
    """Return a family whose first `name_size` labels are names.

    Samples with equal labels are summed. After 200 names, further samples are summed as `other`.
    """
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
    """Return a family of samples with labels.

    Lone surrogates are escaped, because exporters cannot encode them.
    """
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
    "connections_limit", "gauge", "Maximum number of connections (max_connections)."
)
HANDSHAKING_LIMIT: Final = _measure(
    "handshaking_limit", "gauge", "Maximum number of accepted connections in their handshake."
)
CONNECTIONS_REFUSED: Final = _measure(
    "connections_refused", "counter", "Connections rejected by a limit, by reason.", "reason"
)
CONNECTIONS_ENDED: Final = _measure(
    "connections_ended", "counter", "Open connections that ended, by code.", "code"
)
HANDSHAKES: Final = _measure(
    "handshakes", "counter", "Finished handshakes, by result.", "direction", "result"
)
HANDSHAKE_TIME: Final = _seconds(
    "handshake", "histogram", "Time from the first byte to an open connection."
)
SESSIONS_SUSPENDED: Final = _measure(
    "sessions_suspended", "counter", "Number of times that a session lost its transport."
)
SESSIONS_RESUMED: Final = _measure(
    "sessions_resumed", "counter", "Number of times that a session resumed over a new transport."
)
SESSIONS_WAITING: Final = _measure(
    "sessions_waiting", "gauge", "Suspended sessions that can be resumed."
)
SESSIONS_WAITING_LIMIT: Final = _measure(
    "sessions_waiting_limit", "gauge", "Maximum number of suspended sessions."
)
STATEMENTS_DROPPED: Final = _measure(
    "key_statements_dropped",
    "counter",
    "Key statements of other nodes that were not stored, by reason.",
    "reason",
)

# Traffic and memory.
RECEIVED: Final = _bytes("received", "counter", "Bytes received over connections.")
SENT: Final = _bytes("sent", "counter", "Bytes written to connections.")
EVENTS_DROPPED: Final = _measure(
    "events_dropped", "counter", "Received events that no handler consumed."
)
QUEUED_EVENTS: Final = _measure("queued_events", "gauge", "Events that wait to be written.")
QUEUED: Final = _bytes("queued", "gauge", "Payload bytes that wait to be written.")
WRITE_WAITS: Final = _measure(
    "write_waits",
    "counter",
    "Number of times that a sender had to wait for queued data to be written.",
)
WRITERS_WAITING: Final = _measure(
    "writers_waiting", "gauge", "Senders that are waiting for queued data to be written."
)
STREAMS: Final = _measure("streams", "gauge", "Open streams, except topic streams.")
CREDIT_WAITS: Final = _measure(
    "credit_waits", "counter", "Number of times that a stream had data to send but no credit."
)
MEMORY: Final = _bytes("memory_held", "gauge", "Memory used on behalf of peers.")
MEMORY_LIMIT: Final = _bytes(
    "memory_limit", "gauge", "Maximum memory used on behalf of peers (memory)."
)

# Calls.
CALLS_RECEIVED: Final = _measure(
    "calls_received", "counter", "Received calls with a handler, by result code.", "topic", "code"
)
CALL_RECEIVED_TIME: Final = _seconds(
    "call_received", "histogram", "Time from the arrival of a call to its response.", "topic"
)
EVENTS_RECEIVED: Final = _measure(
    "named_events_received",
    "counter",
    "Received named events with a handler, by result code.",
    "event",
    "code",
)
REQUESTS_REFUSED: Final = _measure(
    "requests_refused", "counter", "Requests rejected before a handler ran, by result code.", "code"
)
REQUESTS_RUNNING: Final = _measure(
    "requests_running", "gauge", "Received requests that are not yet answered."
)
CALLS_QUEUED: Final = _measure(
    "calls_queued", "gauge", "Calls that wait because of the concurrency limit.", "topic"
)
CALLS_MADE: Final = _measure(
    "calls_made", "counter", "Calls made by this node, by result code.", "code"
)
CALL_MADE_TIME: Final = _seconds("call_made", "histogram", "Time from a call to its response.")
REQUESTS_WAITING: Final = _measure(
    "requests_waiting", "gauge", "Requests of this node that wait for a response."
)
ONCE_REMEMBERED: Final = _measure("once_remembered", "gauge", "Stored results of idempotent calls.")

# Topics.
SUBSCRIBERS: Final = _measure("subscribers", "gauge", "Subscribers, by topic.", "topic")
NOTES_PUBLISHED: Final = _measure("notes_published", "counter", "Notes published.", "topic")
NOTES_DELIVERED: Final = _measure(
    "notes_delivered", "counter", "Notes sent, counted once for each subscriber.", "topic"
)
NOTES_LOST: Final = _measure(
    "notes_lost", "counter", "Notes dropped because subscribers were too slow.", "topic"
)
NOTES_WAITING: Final = _bytes(
    "notes_waiting", "gauge", "Notes that wait for slow subscribers.", "topic"
)
NOTES_RECEIVED: Final = _measure(
    "notes_received", "counter", "Notes received by subscriptions of this node."
)

# The loop.
PROCESSOR: Final = _seconds("loop_processor", "counter", "Processor time of the loop's thread.")
LOOP_TURN: Final = _seconds(
    "loop_turn_processor",
    "histogram",
    "Processor time of one iteration of the loop, sampled four times a second.",
)
LOOP_LAG: Final = _seconds(
    "loop_lag", "histogram", "Delay of a timer, sampled four times a second."
)
TURN: Final = _seconds(
    "connection_turn",
    "histogram",
    "Time that the loop spent on the received data of one connection.",
)

# Links, tunnels, federation.
LINKS: Final = _measure("links", "gauge", "Links, by state.", "state")
LINK_SESSIONS: Final = _measure("link_sessions", "counter", "Sessions established by links.")
LINK_FAILURES: Final = _measure(
    "link_failures", "counter", "Failed connection attempts and ended sessions of links."
)
TUNNELS: Final = _measure("tunnels", "gauge", "Tunnels that end at or pass through this node.")
TUNNELS_DIALLED: Final = _measure(
    "tunnels_dialled", "counter", "Tunnels requested by peers, by result code.", "code"
)
TUNNELLED: Final = _bytes("tunnelled", "counter", "Bytes forwarded through tunnels.")
SERVERS: Final = _measure("federation_servers", "gauge", "Other servers that this server knows.")
SERVER_LINKS: Final = _measure(
    "federation_links", "gauge", "Links with other servers, by state.", "state"
)

# Durable buses.
BUS_EVENTS: Final = _measure(
    "bus_events",
    "counter",
    "Bus events handled by this process and by peers that use its bus, by outcome.",
    "outcome",
)
BUS_LAG: Final = _measure(
    "bus_lag", "gauge", "Events that were not yet delivered to a group.", "stream", "group"
)
BUS_PENDING: Final = _measure(
    "bus_pending", "gauge", "Events that were delivered and not acknowledged.", "stream", "group"
)
BUS_DEAD: Final = _measure(
    "bus_dead_lettered", "counter", "Dead letters of a group.", "stream", "group"
)
BUS_UNREACHABLE: Final = _measure(
    "buses_unreachable", "gauge", "Buses that could not be reached at the last collection."
)

# The journal.
JOURNAL_RECORDS: Final = _measure("journal_records", "counter", "Records written.")
JOURNAL_WRITTEN: Final = _bytes("journal_written", "counter", "Bytes written.")
JOURNAL_WAITING: Final = _bytes("journal_waiting", "gauge", "Bytes that wait for the disk.")
JOURNAL_LIMIT: Final = _bytes(
    "journal_waiting_limit", "gauge", "Maximum number of bytes that may wait (buffer_size)."
)
JOURNAL_SEGMENTS: Final = _measure("journal_segments", "counter", "Segments finished.")
JOURNAL_SESSIONS: Final = _measure("journal_sessions", "gauge", "Sessions being recorded.")
JOURNAL_FAILED: Final = _measure(
    "journal_failed", "gauge", "1 after the journal could not be written."
)
