"""The checks of the promises: numbers sent by one side against numbers received by the other.

The functions have no side effects and return one sentence for each broken promise.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.soak.plan import KEYS_CHANGE
from tests.soak.samples import Growth

Line = Mapping[str, Any]
NOTHING: Line = {"sent": {}, "received": {}, "graceful": False, "violations": [], "uncounted": 0}

# Counts that must be 0 at rest: bytes not released or still waiting, and unanswered requests of
# either side, on the main stream and on others.
NOTHING_AT_REST = (
    "unconsumed",
    "queued",
    "asking",
    "answering",
    "stream_requests",
    "deadlines",
)

# Bytes by which memory may grow after the warm-up; more if there was no time to warm up.
GROWTH = 8 * 2**20
GROWTH_OF_SHORT_RUNS = 32 * 2**20
SHORT_RUN = 45.0
# Fraction of one core that an idle process may use.
IDLE_CPU = 0.02
# Descriptors that may be open in addition to those at the start and one for each connection:
# sockets that are being dialled or closed.
MORE_FILES = 6
# libuv opens one descriptor with the first connection and never closes it.
SPARE_FILES = 1
# One task waits for a handler from the first call on.
SPARE_TASKS = 1


def check_connection(number: int, client: Line | None, server: Line | None) -> Iterator[str]:
    """Check that acknowledged data was processed, and that only sent data arrived.

    After a clean end, everything sent must have arrived. A side without a conversation has no line.
    """
    ours, theirs = client or NOTHING, server or NOTHING
    for side, line in (("client", ours), ("server", theirs)):
        for what in line["violations"]:
            yield f"connection {number}, {side}: {what}"
        if line["uncounted"]:
            yield f"connection {number}, {side}: {line['uncounted']} violations more"
    graceful = ours["graceful"] and theirs["graceful"]
    if ours["graceful"] != theirs["graceful"]:
        yield f"connection {number}: only one side saw a clean end"
    for way, sender, reader in (("to server", ours, theirs), ("to client", theirs, ours)):
        for flow in sorted({*sender["sent"], *reader["received"]}):
            sent, acknowledged, exact = sender["sent"].get(flow, (0, 0, True))
            came = reader["received"].get(flow, 0)
            where = f"connection {number} {way}, {flow}"
            if came < acknowledged:
                yield f"{where}: {acknowledged} acknowledged, {came} came"
            if came > sent:
                yield f"{where}: {sent} sent, {came} came"
            if graceful and exact and came != sent:
                yield f"{where}: clean end, {sent} sent, {came} came"


def check_rest(client: Line, server: Line) -> Iterator[str]:
    """Check that a connection is completely at rest.

    No data waits, every window is full, and each side's credit equals the rest of the other's
    window. Every subscriber has the newest note.
    """
    ours, theirs = client["connections"], server["connections"]
    if ours.keys() != theirs.keys():
        yield f"at rest the client has connections {[*ours]}, the server {[*theirs]}"
    for number in ours.keys() & theirs.keys():
        pair = ours[number], theirs[number]
        for side, look, other in (("client", *pair), ("server", *reversed(pair))):
            for what in _check_side(look, other):
                yield f"at rest, connection {number}, {side}: {what}"
        for side, look, publisher in (("client", pair[0], server), ("server", pair[1], client)):
            for topic, count in publisher["published"].items():
                if look["notes"].get(topic) != count:
                    came = look["notes"].get(topic)
                    yield f"at rest, connection {number}, {side}: {topic} at {came} of {count}"


def _check_side(look: Line, other: Line) -> Iterator[str]:
    for what in NOTHING_AT_REST:
        if look[what]:
            yield f"{what} is {look[what]}"
    if look["streams"].keys() != other["streams"].keys():
        yield f"streams {[*look['streams']]}, on the other side {[*other['streams']]}"
    # Each topic has a stream in each direction, which isn't the application's.
    if look["kept"] + 2 * len(look["notes"]) != len(look["streams"]):
        yield f"{look['kept']} streams kept of {len(look['streams'])}"
    windows = 0
    for stream, (_, window, left, consumed) in look["streams"].items():
        windows += window
        if left + consumed != window:
            yield f"stream {stream}: {window - left - consumed} bytes of window are lost"
        if window and 2 * consumed >= window:
            yield f"stream {stream}: {consumed} of {window} bytes consumed and not granted"
        credit = other["streams"].get(stream, [None])[0]
        if (credit or 0) != left:
            yield f"stream {stream}: window has {left} left, the other side's credit is {credit}"
    if windows != look["committed"]:
        yield f"windows of {windows} bytes, {look['committed']} committed"
    for topic, (told, missing) in look["losses"].items():
        if told != missing:
            yield f"{topic}: {missing} notes missing, {told} told"


def check_usage(side: str, memory: Growth, before: Line, after: Line, idle: float) -> Iterator[str]:
    """Check that memory is flat, resources are released at the end, and idle nodes use no CPU.

    `idle` is the fraction of a core used at rest.
    """
    limit = GROWTH if memory.seconds >= SHORT_RUN else GROWTH_OF_SHORT_RUNS
    if memory.worst > limit:
        yield f"{side}: memory grew by {memory.worst / 2**20:.1f} MiB"
    for what, more in (("files", SPARE_FILES), ("threads", 0), ("tasks", SPARE_TASKS)):
        if after[what] > before[what] + more:
            yield f"{side}: {after[what]} {what} in the end, {before[what]} at the start"
    if idle >= IDLE_CPU:
        yield f"{side}: {idle:.1%} of a core while idle"


def check_files(side: str, most: int, before: int, links: int) -> Iterator[str]:
    """Check that there are few descriptors under load, apart from one per connection."""
    if most > before + links + MORE_FILES:
        yield f"{side}: up to {most} descriptors, {before} at the start"


def check_epochs(side: str, epochs: Line) -> Iterator[str]:
    """Check that each side of each connection changes keys within 4 seconds under load.

    The delay of the machine is allowed for. So there is an epoch for each 4 seconds and direction,
    except the one in which a connection ended.
    """
    # The loop can be late for the timer, and again for the following iteration.
    if epochs["longest"] > KEYS_CHANGE + 2 * epochs["lag"]:
        yield f"{side}: keys in use for {epochs['longest']} s, the loop late by {epochs['lag']} s"
    least = epochs["seconds"] / KEYS_CHANGE - epochs["connections"]
    if min(epochs["sent"], epochs["received"]) < least:
        yield f"{side}: {epochs['sent']} and {epochs['received']} epochs in {epochs['seconds']} s"
    if not epochs["rekeys"]:
        yield f"{side}: no rekey"
