"""The durable bus: events that are kept until they are processed."""

from node.bus.body import Data
from node.bus.bus import Bus
from node.bus.bus_address import open_bus
from node.bus.config import BusConfig
from node.bus.consumers.consumption import Consumption
from node.bus.dead_letters import DeadLetter
from node.bus.event import BusEvent
from node.bus.history import History
from node.bus.ids import Position
from node.bus.model import ConsumerInfo, Counters, Failure, GroupInfo, PendingInfo, StreamInfo
from node.bus.redis.format import DOCUMENTED, LIGHTBUS, RedisFormat
from node.bus.schemas import When
from node.remote_bus.authorisation import AllowBus, BusRequest

__all__ = [
    "DOCUMENTED",
    "LIGHTBUS",
    "AllowBus",
    "Bus",
    "BusConfig",
    "BusEvent",
    "BusRequest",
    "ConsumerInfo",
    "Consumption",
    "Counters",
    "Data",
    "DeadLetter",
    "Failure",
    "GroupInfo",
    "History",
    "PendingInfo",
    "Position",
    "RedisFormat",
    "StreamInfo",
    "When",
    "open_bus",
]
