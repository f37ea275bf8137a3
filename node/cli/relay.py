"""`parley relay`: an event relay, and a node that bridges it to a topic."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from node.cli.options import DEFAULT_ADDRESS, AllowInsecure, NodeOptions, takes_node_options
from node.cli.output import Output
from node.cli.run import ending_signals, make_node, require_other, run, say_closed
from node.errors import ConfigError
from node.gateways.forward import Forward
from node.gateways.relay.bridge import Bridge
from node.gateways.relay.relay import Relay
from node.logs import one_line
from node.node import Node
from node.remote.requests import Call
from node.settings import RelaySettings, load_settings
from node.settings.serve import parse_forward
from node.trust.policies import TrustPolicy

DEFAULT_RELAY_ADDRESS = "tcp://127.0.0.1:0"
LIMITS = "Limits"
NODE = "A node beside it"


ListenOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Relay at tcp://host:port or unix:///path; repeatable. "
        f"Default: {DEFAULT_RELAY_ADDRESS}"
    ),
]
BridgeOption = Annotated[
    str | None,
    typer.Option(
        metavar="TOPIC[=ADDR]",
        help="Run a node that publishes broadcasts as notes of this topic, and broadcasts "
        "its notes; with ADDR also those of the topic of the node there.",
        rich_help_panel=NODE,
    ),
]
NodeOption = Annotated[
    list[str] | None,
    typer.Option(
        "--node",
        metavar="ADDR",
        help=f"Where that node listens; repeatable. Default: {DEFAULT_ADDRESS}",
        rich_help_panel=NODE,
    ),
]
FeedbackOption = Annotated[
    bool | None,
    typer.Option(
        "--feedback/--no-feedback",
        help="Whether a sender is told that its target is not connected. Default: it is.",
    ),
]
ClientsOption = Annotated[
    int | None,
    typer.Option(help="Connections at once. Default: 256.", rich_help_panel=LIMITS),
]
LongestFrameOption = Annotated[
    int | None,
    typer.Option(
        help="Longest message, bytes with its UUIDs. Default: 1 MiB.", rich_help_panel=LIMITS
    ),
]
WriteBufferOption = Annotated[
    int | None,
    typer.Option(
        help="Bytes that may wait for a client before it is dropped. Default: 4 MiB.",
        rich_help_panel=LIMITS,
    ),
]
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        help="TOML file with settings; its table relay and variables PARLEY_RELAY_... "
        "stand below options."
    ),
]


@takes_node_options
def relay(
    options: NodeOptions,
    listen: ListenOption = None,
    bridge: BridgeOption = None,
    node: NodeOption = None,
    feedback: FeedbackOption = None,
    clients: ClientsOption = None,
    longest_frame: LongestFrameOption = None,
    write_buffer: WriteBufferOption = None,
    allow_insecure: AllowInsecure = False,
    config: ConfigOption = None,
) -> None:
    """Relay messages between clients that are known by a UUID, until SIGINT or SIGTERM."""
    settings = load_settings(config)
    given = {"clients": clients, "longest_frame": longest_frame, "write_buffer": write_buffer}
    try:
        limits = replace(
            settings.relay.limits, **{name: n for name, n in given.items() if n is not None}
        )
    except ValueError as error:
        raise ConfigError(str(error)) from error
    relaying = replace(
        settings.relay,
        listen=tuple(listen or settings.relay.listen or [DEFAULT_RELAY_ADDRESS]),
        feedback=settings.relay.feedback if feedback is None else feedback,
        allow_insecure=allow_insecure or settings.relay.allow_insecure,
        limits=limits,
    )
    wish = _wish(bridge, node)
    # The settings' trust is for incoming peers; the options decide about dialled ones.
    command = partial(_relay, relaying, wish, options.unattended_trust)
    over = options.over(settings)
    run(
        over,
        command,
        access_log=settings.serve.access_log,
        log_requests=settings.serve.log_requests,
        serves=True,
    )


async def _relay(
    relaying: RelaySettings,
    wish: "_Wish | None",
    dialling_trust: Callable[[str], TrustPolicy],
    options: NodeOptions,
    out: Output,
) -> None:
    async with (
        Relay(limits=relaying.limits, feedback=relaying.feedback) as relay,
        _bridged(relay, relaying, wish, options, dialling_trust) as bridged,
    ):
        with ending_signals() as signals:
            for address in relaying.listen:
                place = await relay.listen(address, allow_insecure=relaying.allow_insecure)
                out.say(f"relaying on {place}")
            await _announce(out, relay, bridged, wish)
            name = (await anext(signals)).name
        counts = {
            "dropped": relay.dropped,
            "undeliverable": relay.undeliverable,
            "turned_away": relay.turned_away,
        }
    say_closed(out, name, **counts)


@dataclass(frozen=True, slots=True)
class _Wish:
    """What is to be bridged: a topic, perhaps the node whose it is too, and where ours listens."""

    topic: str
    source: str
    listen: tuple[str, ...]


def _wish(bridge: str | None, listen: list[str] | None) -> _Wish | None:
    if bridge is None:
        if listen:
            raise ConfigError(
                f"cannot use --node {listen[0]} without --bridge: only a bridge runs a node; "
                "give --bridge TOPIC"
            )
        return None
    topic, source = parse_forward(bridge) if "=" in bridge else (bridge, "")
    if not topic:
        raise ConfigError(
            f"cannot use --bridge {bridge!r}: the topic is empty; give TOPIC or TOPIC=ADDR"
        )
    return _Wish(topic, source, tuple(listen or [DEFAULT_ADDRESS]))


@asynccontextmanager
async def _bridged(
    relay: Relay,
    relaying: RelaySettings,
    wish: _Wish | None,
    options: NodeOptions,
    dialling_trust: Callable[[str], TrustPolicy],
) -> AsyncIterator[Node | None]:
    """The node that is to be had, bridged to the relay, and not listening yet."""
    if wish is None:
        yield None
        return
    async with make_node(options, options.listening_trust()) as node:
        topic = node.topic(wish.topic)

        @node.on_call(wish.topic)
        async def publish(call: Call) -> None:
            """Whoever calls the topic publishes to it."""
            await topic.publish(call.data)

        async with Bridge(relay, topic, node.node_id.uuid, values=relaying.values):
            if not wish.source:
                yield node
                return
            require_other(node, wish.source)
            trust = dialling_trust(wish.source)
            async with Forward(node, wish.topic, wish.source, trust=trust):
                yield node


async def _announce(out: Output, relay: Relay, node: Node | None, wish: _Wish | None) -> None:
    fields: dict[str, object] = {"addresses": relay.addresses}
    if node is not None and wish is not None:
        places = [await node.listen(address) for address in wish.listen]
        for place in places:
            out.say(f"listening on {place}")
        source = f" with {wish.source}" if wish.source else ""
        out.say(f"bridging {one_line(wish.topic)}{source} as {node.node_id.uuid}")
        fields |= {"node_id": str(node.node_id), "node_addresses": places, "topic": wish.topic}
    out.event("ready", **fields)
