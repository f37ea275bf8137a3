"""What `parley serve` offers beside its own protocol: other dialects, and topics of other nodes.

Mistakes are found before anybody connects; everything ends before the node does.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from parley._node.cli.run import require_other
from parley._node.cli.serve.builtin import CLOCK_TOPIC
from parley._node.errors import ConfigError
from parley._node.gateways.forward import Forward
from parley._node.gateways.named import NamedGateway
from parley._node.gateways.relay.bridge import Bridge
from parley._node.gateways.relay.relay import Relay
from parley._node.gateways.simproto.gateway import SimProtoGateway
from parley._node.node import Node
from parley._node.remote.requests import Call
from parley._node.settings import Settings
from parley._node.settings.serve import parse_forward
from parley._node.trust.policies import TrustPolicy


@dataclass(frozen=True, slots=True)
class Spoken:
    """What is joined to a node: gateways, of which each is there even if it listens nowhere,
    and topics of other nodes."""

    simproto: SimProtoGateway
    named: NamedGateway
    relay: Relay
    forwards: tuple[Forward, ...]

    async def listen(self, settings: Settings) -> None:
        """Listen for all dialects.

        Raises:
            InsecureAddressError: others could reach an address, and that is not allowed.
            UnreachableError: one cannot be listened on.
        """
        for gateway, spoken in (
            (self.simproto, settings.simproto),
            (self.named, settings.named),
            (self.relay, settings.relay),
        ):
            for address in spoken.listen:
                allow_insecure = settings.dialects.allow_insecure
                await gateway.listen(address, allow_insecure=allow_insecure)

    def relay_counts(self) -> dict[str, int]:
        """Return how many clients and messages the relay dropped; nothing without a relay."""
        if not self.relay.addresses:
            return {}
        names = ("dropped", "undeliverable", "turned_away")
        return {name: getattr(self.relay, name) for name in names}


@asynccontextmanager
async def joined(
    node: Node, settings: Settings, trust_of: Callable[[str], TrustPolicy]
) -> AsyncIterator[Spoken]:
    """The gateways of a node, which do not listen yet, and its forwarded topics; `trust_of`
    gives the trust policy for an address.

    Raises:
        ConfigError: a topic cannot be forwarded.
    """
    async with AsyncExitStack() as stack:
        named, relay, dialects = settings.named, settings.relay, settings.dialects
        limits, values = dialects.limits, dialects.values
        spoken = Spoken(
            SimProtoGateway(node, limits=limits, values=values),
            NamedGateway(node, flavour=named.flavour, format=named.format, limits=limits),
            Relay(limits=limits, feedback=relay.feedback),
            _forwards(node, settings.serve.forward, trust_of),
        )
        await stack.enter_async_context(spoken.simproto)
        await stack.enter_async_context(spoken.named)
        await stack.enter_async_context(spoken.relay)
        if relay.bridge is not None:
            await stack.enter_async_context(_bridge(node, spoken.relay, settings))
        for forward in spoken.forwards:
            await stack.enter_async_context(forward)
        yield spoken


def _bridge(node: Node, relay: Relay, settings: Settings) -> Bridge:
    """Join the relay to a topic of the node, which also takes calls of that name."""
    name = settings.relay.bridge
    if not (name and settings.relay.listen):
        raise ConfigError(
            f"cannot bridge the topic '{name}': it is empty, or no relay listens; give --relay ADDR"
        )
    topic = node.topics.get(name) or node.topic(name)

    @node.on_call(name)
    async def publish(call: Call) -> None:
        """Publish the data of the call."""
        await topic.publish(call.data)

    return Bridge(relay, topic, node.node_id.uuid, values=settings.dialects.values)


def _forwards(
    node: Node, texts: tuple[str, ...], trust_of: Callable[[str], TrustPolicy]
) -> tuple[Forward, ...]:
    wanted = [parse_forward(text) for text in dict.fromkeys(texts)]
    for topic, _ in wanted:
        if topic == CLOCK_TOPIC:
            raise ConfigError(f"{topic} cannot be forwarded: each node has a clock of its own")
    require_other(node, *(address for _, address in wanted))
    return tuple(
        Forward(node, topic, address, trust=trust_of(address)) for topic, address in wanted
    )
