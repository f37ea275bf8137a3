"""Asks a node what it offers, for a shell that completes a name: only a node that is known."""

from typing import Any

import anyio

from parley._crypto.identity import NodeId
from parley._node.cli.options import SHARED, NodeOptions, in_context
from parley._node.cli.topics.offers import ToldOffer, ask_offers
from parley._node.errors import ParleyError
from parley._node.node import Node
from parley._node.transport.address import Address
from parley._node.trust.policies import FirstUse, Known, TrustPolicy, known_peers_of, parse_trust


def known_offers(address: str, params: dict[str, Any], seconds: float) -> list[ToldOffer]:
    """What the node at `address` offers; `params` are the options of the command that is typed.

    Raises:
        ParleyError: nobody is known there, or the node does not tell in time.
    """
    given = {name: params[name] for name in SHARED if params.get(name) is not None}
    place = {"address": address}
    options = in_context(NodeOptions(**given), place)
    target = Address.parse(place["address"])
    policy = parse_trust(options.trust or "known")
    if isinstance(policy, FirstUse):
        policy = Known(policy.known_peers)
    return anyio.run(_ask, options, target, policy, seconds)


async def _ask(
    options: NodeOptions, target: Address, policy: TrustPolicy, seconds: float
) -> list[ToldOffer]:
    there = target.node_id or _on_record(policy, target)
    if there is None:
        raise ParleyError(f"nobody is known at {target.place}")
    identity = options.identity()
    if there == identity.node_id:
        identity = options.throw_away()  # a node never talks to itself
    with anyio.fail_after(seconds):
        async with Node(identity, config=options.config()) as node:
            peer = await node.connect(str(target), trust=policy)
            return await ask_offers(peer, timeout=seconds)


def _on_record(policy: TrustPolicy, target: Address) -> NodeId | None:
    known_peers = known_peers_of(policy)
    peer = None if known_peers is None else known_peers.by_name(target.place)
    return None if peer is None else peer.node_id
