"""Asks a node what it offers, for a shell that completes a name: only a node that is known."""

from typing import Any

import anyio

from node.cli.options import TABLE, NodeOptions, in_context
from node.cli.topics.offers import ToldOffer, ask_offers
from node.errors import ParleyError
from node.node import Node
from node.transport.address import Address
from node.trust.policies import FirstUse, Known, TrustPolicy, known_peers_of, parse_trust


def known_offers(address: str, params: dict[str, Any], seconds: float) -> list[ToldOffer]:
    """What the node at `address` offers; `params` are the options of the command that is typed.

    Raises:
        ParleyError: nobody is known there, or the node does not tell in time.
    """
    given = {
        name: default if params.get(name) is None else params[name]
        for name, (_, default) in TABLE.items()
    }
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
    if target.node_id is None and not _is_known(policy, target):
        raise ParleyError(f"nobody is known at {target.place}")
    with anyio.fail_after(seconds):
        async with Node(options.identity(), config=options.config()) as node:
            peer = await node.connect(str(target), trust=policy)
            return await ask_offers(peer, timeout=seconds)


def _is_known(policy: TrustPolicy, target: Address) -> bool:
    known_peers = known_peers_of(policy)
    return known_peers is not None and known_peers.by_name(target.place) is not None
