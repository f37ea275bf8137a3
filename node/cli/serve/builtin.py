"""The calls, and the one named event, that every `parley serve` answers."""

import platform
from datetime import UTC, datetime

import anyio

from parley._lbm.codec import Value
from parley._node.handlers.topic import Topic
from parley._node.messaging.payloads import Payload
from parley._node.node import Node
from parley._node.remote.requests import Call, NamedEvent
from parley._node.version import VERSION


def offer_builtin_calls(node: Node) -> None:
    """`parley.echo` answers its data, be it a call or a named event; `parley.info`
    tells of the node that answers and of the caller; `parley.topics` of what it offers."""
    node.offer_topics()

    @node.on_call("parley.echo")
    async def echo(call: Call) -> Value:
        """Answers what it is called with."""
        return call.data

    @node.on("parley.echo")
    async def echo_event(event: NamedEvent) -> Payload:
        """Replies with what it carries."""
        return event.payload  # unread: raw bytes and tandem payloads have no format to read by

    @node.on_call("parley.info")
    async def info(call: Call) -> dict[str, Value]:
        """Tells of this node, and of the caller as it is seen here."""
        caller, suite = call.peer.node_id, call.peer.suite
        return {
            "name": "parley",
            "version": VERSION,
            "python": platform.python_version(),
            "node_id": str(node.node_id),
            "role": node.config.role,
            "caller": str(caller) if caller else None,
            "encrypted": call.peer.encrypted,
            "suite": dict(suite.names()) if suite else None,
            "peers": len(node.peers),
        }


CLOCK_TOPIC = "parley.clock"
CLOCK_INTERVAL = 1.0  # seconds


def offer_clock(node: Node) -> Topic:
    """Have a node publish the topic; `tick` makes its notes."""
    # An old time is of no use: old notes are lost, not the subscription.
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
