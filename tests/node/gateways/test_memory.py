"""The memory limit of all clients of a gateway together, and its release at their end."""

from collections.abc import Callable
from typing import Any

import pytest

from parley._node.dialects.core import ForeignCore
from parley._node.dialects.limits import DialectLimits
from parley._node.dialects.named.codec import Flavour
from parley._node.dialects.named.core import NamedCore
from parley._node.dialects.relay.connection import RelayConnection
from parley._node.dialects.relay.router import Router
from parley._node.dialects.simproto.codec import RPC
from parley._node.dialects.simproto.core import SimProtoCore
from parley._node.gateways.named import NamedGateway
from parley._node.gateways.relay.relay import Relay
from parley._node.gateways.simproto.gateway import SimProtoGateway
from parley._node.protocol.memory_budget import SHARE, MemoryBudget
from tests.node.dialects.named.events import ask, on_wire
from tests.node.dialects.relay.hall import message
from tests.node.dialects.simproto.sides import request
from tests.node.network import new_node

MEMORY = 1 << 20
CLIENTS = 40
PIECE = 20_000
# The memory of one client beyond the total: its share, and one more read.
EACH = SHARE + 2 * PIECE

Client = tuple[ForeignCore, Callable[[int], bytes]]


def simproto(total: MemoryBudget) -> Client:
    core = SimProtoCore(0.0, DialectLimits(), total)
    return core, lambda number: request(RPC, "wait", bytes(PIECE), dialog=number)


def named(total: MemoryBudget) -> Client:
    core = NamedCore(0.0, DialectLimits(), Flavour.PLAIN, total)
    return core, lambda number: on_wire(ask(data=bytes(PIECE), event_id=number), Flavour.PLAIN)


@pytest.mark.parametrize("dialect", [simproto, named])
def test_the_clients_of_a_gateway_have_a_bound_together(
    dialect: Callable[[MemoryBudget], Client],
) -> None:
    total = MemoryBudget(MEMORY)
    clients = [dialect(total) for _ in range(CLIENTS)]
    for number in range(1, 30):
        for core, say in clients:
            if core.wants_data:
                core.receive_data(say(number), 0.0)
    assert MEMORY < total.held <= MEMORY + CLIENTS * EACH
    assert not any(core.wants_data for core, _ in clients)
    clients.append(dialect(total))
    core, say = clients[-1]
    core.receive_data(say(1), 0.0)  # a client with little data is served as usual
    assert core.wants_data
    for core, _ in clients:
        events: list[Any] = core.reports()
        core.receive_eof(1.0)
        if isinstance(core, NamedCore):
            for event in events:
                core.release(event, 1.0)  # its handler has ended
    assert total.held == 0


def test_the_clients_of_a_relay_have_a_bound_together() -> None:
    total, limits, router = MemoryBudget(MEMORY), DialectLimits(), Router()
    uuids = [bytes([number]) * 16 for number in range(1, CLIENTS + 2)]
    cores = [RelayConnection(router, limits, 0.0, total) for _ in uuids]
    for core, uuid in zip(cores, uuids, strict=True):
        core.receive_data(uuid, 0.0)
    sender, now = cores[0], 0.0
    for _ in range(30):
        for uuid in uuids[1:]:
            if not sender.wants_data:
                now += 2 * limits.patience  # no client takes anything
                sender.handle_deadline(now)
            sender.receive_data(message(uuid, uuids[0], bytes(PIECE)), now)
            assert total.held <= MEMORY + CLIENTS * EACH
    assert router.dropped > CLIENTS // 2
    for core in cores:
        core.receive_eof(now)
    assert total.held == 0


def test_each_gateway_has_an_account_for_all_of_its_clients() -> None:
    node = new_node()
    for server in (SimProtoGateway(node), NamedGateway(node), Relay()):
        assert server.account.limit == server.limits.memory == 128 << 20
