"""SimProto, the named events of bromine, and the event relay: gateways, clients and limits."""

from node.dialects.limits import NamedLimits, RelayLimits, SimProtoLimits
from node.dialects.named.codec import Flavour
from node.dialects.relay.codec import RelayCode, RelayFault, RelayMessage
from node.dialects.values import Rest
from node.gateways.guest import Guest
from node.gateways.named.client import NamedClient
from node.gateways.named.gateway import NamedGateway
from node.gateways.named.peer import FlavourName, NamedPeer
from node.gateways.relay.bridge import Bridge
from node.gateways.relay.client import RelayClient
from node.gateways.relay.relay import Relay
from node.gateways.simproto.client import SimProtoClient
from node.gateways.simproto.gateway import SimProtoGateway, offer_simproto
from node.gateways.simproto.peer import SimProtoPeer
from node.gateways.simproto.subscription import SimProtoSubscription
from node.offering import Offering

__all__ = [
    "Bridge",
    "Flavour",
    "FlavourName",
    "Guest",
    "NamedClient",
    "NamedGateway",
    "NamedLimits",
    "NamedPeer",
    "Offering",
    "Relay",
    "RelayClient",
    "RelayCode",
    "RelayFault",
    "RelayLimits",
    "RelayMessage",
    "Rest",
    "SimProtoClient",
    "SimProtoGateway",
    "SimProtoLimits",
    "SimProtoPeer",
    "SimProtoSubscription",
    "offer_simproto",
]
