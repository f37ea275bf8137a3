"""Offers a bus to a node's peers.

One rule: one bus of a node is offered, once; who may do what is `allow`'s to say, and without it
nobody may do anything. Serves nothing itself.
"""

from node.errors import ParleyError
from node.handlers.registry import Entry, Handlers
from node.protocol.codes import BUS_LABEL
from node.remote_bus.authorisation import Allow
from node.remote_bus.service import BusService, Offered


def offer(handlers: Handlers, bus: Offered, allow: Allow) -> BusService:
    """From now on peers may open streams `bus` to `bus`, which is opened with the first.

    Raises:
        ParleyError: a bus is offered already.
    """
    if handlers.bus is not None:
        raise ParleyError("one bus of a node may be offered, and one is")
    service = BusService(bus, allow)
    handlers.bus = Entry(BUS_LABEL, service.serve)
    return service
