"""What `parley serve` offers beside its own protocol: other dialects, and topics of other nodes.

Mistakes are found before anybody connects; everything ends before the node does.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from node.cli.run import require_other
from node.cli.serve.builtin import CLOCK_TOPIC
from node.errors import ConfigError
from node.gateways.forward import Forward
from node.gateways.named.gateway import NamedGateway
from node.gateways.simproto.gateway import SimProtoGateway
from node.node import Node
from node.settings import NamedSettings, Settings, SimProtoSettings
from node.settings.serve import parse_forward
from node.trust.policies import TrustPolicy


@dataclass(frozen=True, slots=True)
class Spoken:
    """What is joined to a node: gateways, of which each is there even if it listens nowhere,
    and topics of other nodes."""

    simproto: SimProtoGateway
    named: NamedGateway
    forwards: tuple[Forward, ...]

    async def listen(self, simproto: SimProtoSettings, named: NamedSettings) -> None:
        """Listen for both dialects.

        Raises:
            InsecureAddressError: others could reach an address, and that is not allowed.
            UnreachableError: one cannot be listened on.
        """
        for address in simproto.listen:
            await self.simproto.listen(address, allow_insecure=simproto.allow_insecure)
        for address in named.listen:
            await self.named.listen(address, allow_insecure=named.allow_insecure)


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
        simproto, named = settings.simproto, settings.named
        spoken = Spoken(
            SimProtoGateway(node, limits=simproto.limits, values=simproto.values),
            NamedGateway(node, flavour=named.flavour, format=named.format, limits=named.limits),
            _forwards(node, settings.serve.forward, trust_of),
        )
        await stack.enter_async_context(spoken.simproto)
        await stack.enter_async_context(spoken.named)
        for forward in spoken.forwards:
            await stack.enter_async_context(forward)
        yield spoken


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
