"""The topic `parley.clock`: a note each interval, for whoever wants to see that a node lives.

One rule: no drift: the times of the notes are multiples of the interval since the start,
and ticks that a busy or sleeping machine missed are left out, never made up for.
"""

from datetime import UTC, datetime

import anyio

from node.handlers.topic import Topic
from node.node import Node

CLOCK_TOPIC = "parley.clock"


def offer_clock(node: Node) -> Topic:
    """Have a node publish the topic; `tick` makes its notes."""
    # Nobody wants to know how late it was: old notes are lost, not the subscription.
    return node.topic(CLOCK_TOPIC, slow="drop-oldest", patience=0)


async def tick(topic: Topic, interval: float) -> None:
    """Publish `{"time": UTC in ISO 8601, "count": from 1}` every `interval` seconds, for ever."""
    start, ticks, count = anyio.current_time(), 0, 0
    while True:
        ticks = max(ticks, int((anyio.current_time() - start) / interval)) + 1
        await anyio.sleep_until(start + ticks * interval)
        count += 1
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        await topic.publish({"time": now, "count": count})
