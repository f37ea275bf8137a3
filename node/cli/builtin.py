"""The calls, and the one named event, that every `parley serve` answers."""

import platform
from importlib.metadata import version

from lbm.codec import Value
from node.messaging.payloads import Payload
from node.node import Node
from node.remote.named_event import NamedEvent
from node.remote.requests import Call


def offer_builtin_calls(node: Node) -> None:
    """`parley.echo` answers its data, be it a call or a named event; `parley.info` who
    answers and who asked."""

    @node.on_call("parley.echo")
    async def echo(call: Call) -> Value:
        return call.data

    @node.on("parley.echo")
    async def echo_event(event: NamedEvent) -> Payload:
        return event.payload  # unread: raw bytes and tandem payloads have no format to read by

    @node.on_call("parley.info")
    async def info(call: Call) -> dict[str, Value]:
        caller, suite = call.peer.node_id, call.peer.suite
        return {
            "name": "parley",
            "version": version("parley-node"),
            "python": platform.python_version(),
            "node_id": str(node.node_id),
            "role": node.config.role,
            "caller": str(caller) if caller else None,
            "encrypted": call.peer.encrypted,
            "suite": dict(suite.names()) if suite else None,
            "peers": len(node.peers),
        }
