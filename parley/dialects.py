"""Gateways, clients and limits for other protocols: SimProto, bromine's named events and the event
relay.
"""

from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.named.codec import Flavour
from parley._node.dialects.relay.codec import RelayCode, RelayFault, RelayMessage
from parley._node.dialects.values import Rest
from parley._node.gateways.guest import Guest
from parley._node.gateways.named import FlavourName, NamedClient, NamedGateway, NamedPeer
from parley._node.gateways.relay.bridge import Bridge
from parley._node.gateways.relay.client import RelayClient
from parley._node.gateways.relay.relay import Relay
from parley._node.gateways.simproto.client import SimProtoClient
from parley._node.gateways.simproto.gateway import SimProtoGateway, offer_simproto
from parley._node.gateways.simproto.peer import SimProtoPeer
from parley._node.gateways.simproto.subscription import SimProtoSubscription
from parley._node.registrar import Registrar

__all__ = [
    "Bridge",
    "DialectLimits",
    "Flavour",
    "FlavourName",
    "Guest",
    "NamedClient",
    "NamedGateway",
    "NamedPeer",
    "Registrar",
    "Relay",
    "RelayClient",
    "RelayCode",
    "RelayFault",
    "RelayMessage",
    "Rest",
    "SimProtoClient",
    "SimProtoGateway",
    "SimProtoPeer",
    "SimProtoSubscription",
    "offer_simproto",
]
