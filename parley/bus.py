"""The durable bus, which stores events until they are processed."""

from parley._node.bus.address import open_bus
from parley._node.bus.bus import Bus
from parley._node.bus.config import BusConfig
from parley._node.bus.consumers.group_consumer import Consumption
from parley._node.bus.consumers.options import ConsumeOptions
from parley._node.bus.data import Data, When
from parley._node.bus.dead_letters import DeadLetter
from parley._node.bus.event import BusEvent, History
from parley._node.bus.identifiers import Position
from parley._node.bus.model import (
    ConsumerInfo,
    Counters,
    Failure,
    GroupInfo,
    PendingInfo,
    StreamInfo,
)
from parley._node.bus.redis.format import DOCUMENTED, LIGHTBUS, RedisFormat
from parley._node.bus.remote.authorisation import AllowBus, BusRequest

__all__ = [
    "DOCUMENTED",
    "LIGHTBUS",
    "AllowBus",
    "Bus",
    "BusConfig",
    "BusEvent",
    "BusRequest",
    "ConsumeOptions",
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
