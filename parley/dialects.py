"""SimProto, the named events of bromine, and the event relay: gateways, clients and limits."""

from node.dialects.limits import NamedLimits, RelayLimits, SimProtoLimits
from node.dialects.relay.codec import RelayCode, RelayFault, RelayMessage
from node.gateways.guest import Guest
from node.gateways.named.client import NamedClient
from node.gateways.named.gateway import NamedGateway
from node.gateways.named.peer import NamedPeer
from node.gateways.relay.bridge import Bridge
from node.gateways.relay.client import RelayClient
from node.gateways.relay.relay import Relay
from node.gateways.simproto.client import SimProtoClient
from node.gateways.simproto.gateway import SimProtoGateway, offer_simproto
from node.gateways.simproto.peer import SimProtoPeer
from node.gateways.simproto.subscription import SimProtoSubscription

__all__ = [
    "Bridge",
    "Guest",
    "NamedClient",
    "NamedGateway",
    "NamedLimits",
    "NamedPeer",
    "Relay",
    "RelayClient",
    "RelayCode",
    "RelayFault",
    "RelayLimits",
    "RelayMessage",
    "SimProtoClient",
    "SimProtoGateway",
    "SimProtoLimits",
    "SimProtoPeer",
    "SimProtoSubscription",
    "offer_simproto",
]
